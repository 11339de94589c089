"""Recordings and replays over HTTP and from the command line: a real server, its recording, its replay."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from aiohttp import ClientSession

from engine.orders import Action, Order
from replay.replaying.run import run
from replay.replaying.wanted import Wanted, chosen
from replay.trace import Trace, merged
from tests.engine.records.conftest import recorded_engine
from tests.web.conftest import serving
from web.replaying.http import connected

pytestmark = pytest.mark.anyio

SERAI = str(Path(sys.executable).with_name("serai"))


def trace(model: str, *arrived: float, tokens: int = 5, outputs=None) -> Trace:
    return Trace.of(
        "t",
        arrived,
        models=[model] * len(arrived),
        input_size=[tokens] * len(arrived),
        output_size=outputs,
    )


async def command(*given: str, code: int = 0) -> str:
    """What `serai` printed; nothing of the caller's own settings counts."""
    done = await anyio.run_process([SERAI, *given], check=False, stderr=subprocess.STDOUT)
    said = done.stdout.decode()
    assert done.returncode == code, said
    return said


async def test_traffic_is_recorded_exported_and_replayed_against_the_same_server(tmp_path):
    """The whole way: start, ask, stop, export, replay by HTTP, report beside what was recorded."""
    async with recorded_engine(tmp_path) as engine, serving(engine) as url:
        assert "monday is being recorded, without content" in await command(
            "record", "start", "monday", "--url", url
        )
        async with ClientSession(url) as http:
            for number in range(30):
                body = {"items": [{"text": "one two three"}] * (1 + number % 2)}
                async with http.post("/v1/encode/a", json=body) as answer:
                    assert answer.status == 200
                await anyio.sleep(0.02)
        listed = await command("record", "list", "--url", url)
        assert "monday" in listed and "runs" in listed
        assert "monday is recorded" in await command("record", "stop", "--url", url)
        out = tmp_path / "m.jsonl.gz"
        await command("record", "export", "monday", "-o", str(out), "--url", url)
        said = await command(
            "replay", str(out), "--to", url, "--speed", "0.5", "-o", str(tmp_path / "r"), "--offline"
        )
        assert "a, standard: 30 requests" in said
        lines = engine.closely.journal.newest(30)
        assert sorted(done.costs for done in lines) == [(3,)] * 15 + [(3, 3)] * 15

    report = json.loads((tmp_path / "r.json").read_text())
    assert report["replayed"]["requests"] == report["recorded"]["requests"] == 30
    assert report["replayed"]["outcomes"] == {"ok": 30}
    assert report["replayed"]["devices"][0]["peak_bytes"] >= 100 * 2**20
    page = (tmp_path / "r.html").read_text()
    assert "Replay of m" in page and "<polyline" in page and "0.5 times" in page
    assert "http" not in page.replace(url, "").replace("http://www.w3.org", "")  # nothing from elsewhere


async def test_what_is_refused_and_who_is_not_there_have_outcomes_of_their_own(tmp_path):
    async with recorded_engine(tmp_path) as engine, serving(engine) as url:
        await engine.operators.operate(Order(Action.PAUSE, "b"))
        mixed = merged([trace("a", 0), trace("b", 0.05), trace("g", 0.1, outputs=[4])])
        async with connected(url, None, engine.catalog) as server:
            done = await run(chosen(mixed, None, Wanted()), server)
    assert done.log.answers().told() == ["ok", "MODEL_PAUSED", "ok"]
    assert done.log.outcomes[2].output_tokens == 4
    assert done.log.answers().run[0] > 0 and done.log.answers().latency[1] == float("inf")
    async with connected(url, None, engine.catalog) as server:
        done = await run(chosen(trace("a", 0, 0.01), None, Wanted()), server)
    assert done.log.answers().told() == ["NOT_SENT", "NOT_SENT"] and done.log.unsent == 2


async def test_a_trace_of_others_is_taken_in_and_a_broken_file_is_refused_with_its_line(tmp_path):
    csv = tmp_path / "theirs.csv"
    csv.write_text("when,size\n5,10\n3,20\n4,30\n")
    broken = tmp_path / "broken.jsonl.gz"
    async with recorded_engine(tmp_path) as engine, serving(engine) as url:
        said = await command(
            "record", "import", str(csv), "--url", url, "--name", "theirs", "--as", "theirs=a",
            "--map", "time=when", "--map", "input=size",
        )  # fmt: skip
        assert "2 arrivals were out of order" in said or "1 arrivals were out of order" in said
        (info,) = await engine.recordings.infos()
        assert (info.name, info.requests, info.closed) == ("theirs", 3, "imported")
        await command("record", "export", "theirs", "--url", url, "-o", str(tmp_path / "back.jsonl.gz"))
        whole = (tmp_path / "back.jsonl.gz").read_bytes()
        broken.write_bytes(whole[: len(whole) - 20])
        said = await command("record", "import", str(broken), "--url", url, "--name", "b", code=1)
        assert "cut off" in said and "Traceback" not in said
        said = await command("record", "show", "nope", "--url", url, code=1)
        assert "There is no recording 'nope'" in said


async def test_a_file_that_is_no_recording_is_the_senders_mistake_and_the_server_goes_on(tmp_path):
    header = {"serai_recording": 1, "name": "x", "started_at": 1e9, "seconds": 2.0}
    asked = {"is": "request", "at": 0.5, "model": "a"}
    refused = [
        ([header, {"is": {}, "at": 1}], "upload.jsonl.gz:2: '{}' is nothing"),
        ([header | {"seed": 9999999999999999999}, asked], "upload.jsonl.gz:1: seed is a whole number"),
        ([header | {"started_at": 1e308}, asked], "upload.jsonl.gz:1: started_at"),
        ([header | {"snapshot": [5]}, asked], "upload.jsonl.gz:1: snapshot is an object"),
        ([header, *[asked | {"x": "a" * 900_000}] * 20], "at most 200 times its size"),
    ]
    async with recorded_engine(tmp_path) as engine, serving(engine) as url, ClientSession(url) as http:
        for lines, said in refused:
            file = gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode())
            async with http.post("/v1/admin/recordings/x/import", data=file) as answer:
                message = (await answer.json())["detail"]["message"]
                assert answer.status == 400 and said in message and "/tmp" not in message, message
        async with http.get("/v1/admin/recordings") as answer:
            assert answer.status == 200 and (await answer.json())["recordings"] == []


async def test_other_forms_keep_times_and_sizes(tmp_path):
    csv = tmp_path / "t.csv"
    csv.write_text("time,input,output,model\n0,600,20,m\n1.5,10,5,m\n")
    given = ("--output", str(tmp_path / "out"))
    mapped = tmp_path / "t.jsonl.gz"

    from replay.formats import writing
    from replay.formats.reading import read

    found = read(csv, mapping={"time": "time", "input": "input", "output": "output", "model": "model"})
    writing.write(found, mapped, "recording", "")
    await command("record", "export", str(mapped), "--form", "mooncake", *given)
    lines = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [line["timestamp"] for line in lines] == [0, 1500]
    assert [line["input_length"] for line in lines] == [600, 10]
    assert lines[0]["hash_ids"] == [0, 1] and lines[1]["hash_ids"] == [2]
    again = read(_renamed(tmp_path / "out", tmp_path / "again.jsonl"))
    assert again.arrived.tolist() == [0, 1.5] and again.output_size.tolist() == [20, 5]
    await command("record", "export", str(mapped), "--form", "vegeta", "--target", "http://h:1", *given)
    target = json.loads((tmp_path / "out").read_text().splitlines()[0])
    assert (target["method"], target["url"]) == ("POST", "http://h:1/v1/encode/m")


def _renamed(path: Path, to: Path) -> Path:
    return path.rename(to)


async def test_content_is_recorded_by_an_administrator_only_and_a_name_that_is_taken_is_refused(tmp_path):
    async with recorded_engine(tmp_path) as engine, serving(engine) as url, ClientSession(url) as http:
        body = {"name": "x", "payloads": {"models": ["a", "nobody"]}}
        async with http.post("/v1/admin/recordings/start", json=body) as answer:
            assert answer.status == 404  # no such model
        body["payloads"]["models"] = ["a"]
        async with http.post("/v1/admin/recordings/start", json=body) as answer:
            assert answer.status == 201
            assert (await answer.json())["recorder"]["running"]["payload_models"] == ["a"]
        async with http.post("/v1/admin/recordings/start", json=body) as answer:
            assert answer.status == 400 and "already" in (await answer.json())["detail"]["message"]
        listed = await command("record", "list", "--url", url)
        assert "x keeps what a is asked" in listed
        async with http.post("/v1/admin/recordings/stop") as answer:
            assert await answer.json() == {"name": "x"}
        async with http.delete("/v1/admin/recordings/x") as answer:
            assert answer.status == 200
        async with http.get("/v1/admin/recordings/x") as answer:
            assert answer.status == 404
