"""Recordings as pages: every form, whoever sends it, and what it is told."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from aiohttp import ClientSession, FormData

from engine.access.principals import Role
from engine.actors.state_store import open_database
from tests import simulation
from tests.engine.records.conftest import recorded_engine
from tests.web.access.conftest import log_in
from tests.web.conftest import serving
from tests.web.console.conftest import HTML, Console, Seen

pytestmark = pytest.mark.anyio

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:{second:02}.0000000,{100 + second},1\n" for second in range(40)
)
AZURE_DEEP = '{"timestamp": ' + "[" * 100_000


@asynccontextmanager
async def recorded(folder, **settings: object) -> AsyncIterator[Console]:
    """A console of a server that records to a disk."""
    async with recorded_engine(folder, state_dir=folder, **settings) as engine:
        async with serving(engine) as url, ClientSession(url) as http:
            yield Console(engine, http)


async def post(seen: Console, path: str, **form: object) -> tuple[int, str]:
    """The status, and where to or what was told."""
    data = {name: str(value) for name, value in form.items()}
    async with seen.http.post(f"/console/{path}", data=data, headers=HTML, allow_redirects=False) as answer:
        return answer.status, answer.headers.get("Location") or await answer.text()


async def monday(seen: Console, requests: int = 30) -> None:
    """Some traffic under a name."""
    await seen.engine.recordings.start("monday")
    for number in range(requests):
        await seen.engine.submit(
            simulation.request("a" if number % 3 else "b", "one two three", id=f"{number}")
        )
        await anyio.sleep(0.01)
    await seen.engine.recordings.stop()


async def over(seen: Console, address: str) -> str:
    """The page of a replay or plan once it has ended."""
    with anyio.fail_after(50):
        while 'data-live="yes"' in (text := await seen.page(address)):  # noqa: ASYNC110 - a process ends
            await anyio.sleep(0.1)
    assert Seen(text).forbidden == []
    return text


async def test_a_recording_is_begun_seen_to_run_and_ended(tmp_path):
    async with recorded(tmp_path) as seen:
        assert await post(seen, "recordings", act="start", name="monday", reason="why") == (
            303,
            "/console/recordings",
        )
        text = await seen.page("/console/recordings")
        assert "is being recorded" in text and 'value="stop"' in text
        status, text = await post(seen, "recordings", act="start", name="tuesday")
        assert status == 400 and 'role="alert"' in text and "monday" in text
        await seen.engine.submit(simulation.request("a", "one"))

        assert await post(seen, "recordings", act="stop") == (303, "/console/recordings/monday")

        text = await seen.page("/console/recordings/monday")
        assert "By model and class" in text and "data-curve" in text and Seen(text).forbidden == []
        acts = [(row.action, row.target, row.reason) for row in await seen.engine.operators.history(9)]
    assert ("record", "monday", "why") in acts and ("stop recording", "monday", "") in acts


async def test_the_content_of_requests_is_recorded_by_model_and_shown_in_red(tmp_path):
    async with recorded(tmp_path) as seen:
        form = {"act": "start", "name": "m", "mode": "payload"}
        assert (await post(seen, "recordings", **form))[0] == 400
        assert (await post(seen, "recordings", **form, models="none/such"))[0] == 404
        assert (await post(seen, "recordings", **form, models="a", hours="0.5x"))[0] == 400
        assert (await post(seen, "recordings", **form, models="a", bytes="much"))[0] == 400
        status, _ = await post(seen, "recordings", **form, models="a, a", hours="0.5", bytes="1MiB")

        text = await seen.page("/console/recordings")
        running = seen.engine.recordings.view.running
    assert status == 303 and running.payload_models == ("a",)
    assert (
        'class="reds"' in text and "with the content of requests" in text and "29 min" in text
    ) or "30.0 min" in text


async def test_a_recording_is_cut_and_deleted_only_when_that_is_meant(tmp_path):
    async with recorded(tmp_path) as seen:
        await monday(seen, 5)
        assert (await post(seen, "recordings", act="trim", name="monday", days="many"))[0] == 400
        assert await post(seen, "recordings", act="trim", name="monday", days="1") == (
            303,
            "/console/recordings/monday",
        )
        assert (await post(seen, "recordings", act="delete", name="monday"))[0] == 400
        assert (await post(seen, "recordings", act="delete", name="sunday", confirmed=1))[0] == 404
        assert await post(seen, "recordings", act="delete", name="monday", confirmed=1) == (
            303,
            "/console/recordings",
        )
        assert (await post(seen, "recordings", act="explode"))[0] == 400
        assert await seen.engine.recordings.infos() == []
        async with seen.http.get("/console/recordings/monday", headers=HTML) as answer:
            assert answer.status == 404


def upload(text: str | bytes, filename: str = "code.csv", **fields: str) -> FormData:
    form = FormData()
    for name, value in fields.items():
        form.add_field(name, value)
    form.add_field("file", text, filename=filename, content_type="text/csv")
    return form


async def test_a_trace_is_taken_in_with_its_form_guessed_and_its_models_named(tmp_path):
    async with recorded(tmp_path) as seen:
        form = upload(AZURE, name="azure", **{"as": "a"})
        async with seen.http.post("/console/recordings/import", data=form, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/console/recordings/azure")
        text = await seen.page("/console/recordings/azure")
        assert "imported" in text and 'scope="row">a<' in text and ">40<" in text
        own = upload(
            "when;size\n".replace(";", ",") + "0,5\n1000,6\n2000,7\n",
            "o.csv",
            map="time=when,input=size",
            unit="0.001",
        )
        async with seen.http.post("/console/recordings/import", data=own, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/console/recordings/o")


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (upload("a,b\n1,2\n3,4\n"), "none of the forms"),
        (upload(AZURE, form="vidur"), "no column"),
        (upload(AZURE, form="teapot"), "no form"),
        (upload(AZURE, unit="x", map="time=TIMESTAMP"), "number of seconds"),
        (upload(AZURE, "x y.csv"), "named by letters"),
        (upload(b"\x1f\x8b\x08broken", "x.jsonl.gz"), "cut off"),
        (upload("", ""), "Choose a file"),
        (upload(AZURE_DEEP, "x.jsonl"), "x.jsonl:1: its values are nested too deeply"),
        (upload(b"\x1f\x8b\x08" + b"\0" * 7 + b"\xff" * 90, "x.csv.gz"), "cut off"),
        (upload(gzip.compress(b"a" * 2**24), "x.csv.gz"), "x.csv.gz:1: a line has at most 1 MiB"),
        (upload(gzip.compress(b'{"serai_recording": 1}\n'), "x.jsonl.gz"), "upload.jsonl.gz:1: started_at"),
    ],
)
async def test_a_file_that_is_none_is_refused_with_what_is_wrong(tmp_path, form, said):
    async with recorded(tmp_path) as seen:
        async with seen.http.post("/console/recordings/import", data=form, headers=HTML) as answer:
            text = await answer.text()
            assert answer.status == 400, text
        assert said in text and str(tmp_path) not in text and "/tmp" not in text
        assert await seen.engine.recordings.infos() == []


def parts(*given: tuple[bytes, bytes], end: bytes = b"--x--\r\n") -> bytes:
    """A form as bytes: of each part the head and what is in it."""
    return b"".join(b"--x\r\n" + head + b"\r\n\r\n" + body + b"\r\n" for head, body in given) + end


NAMED = b'Content-Disposition: form-data; name="name"'
FILE = b'Content-Disposition: form-data; name="file"; filename="%s.csv"'


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (parts((FILE % b"a\0b", AZURE.encode())), "cannot be read|named by letters"),
        (parts((FILE % (b"n" * 20_000), b"x")), "cannot be read"),
        (parts((FILE % b"a", b"x"), end=b"--x\r\nContent-Dispo"), "cannot be read"),
        (parts((FILE % b"a", b"x"), end=b""), "cannot be read"),
        (parts((NAMED, b"x"), (FILE % b"a\xff", b"1,2\n3,4\n")), r"a\?.csv has the columns 1, 2, which"),
        (parts((FILE % b"a", AZURE.encode()), (FILE % b"b", AZURE.encode())), "one file at a time"),
        (parts(*[(b'Content-Disposition: form-data; name="as"', b"")] * 100), "more than 64 parts"),
    ],
    ids=["nul", "long head", "cut off in a head", "cut off", "no utf-8", "two files", "many fields"],
)
async def test_a_form_that_is_broken_is_refused(tmp_path, body, said):
    async with recorded(tmp_path) as seen:
        headers = {**HTML, "Content-Type": "multipart/form-data; boundary=x"}
        async with seen.http.post("/console/recordings/import", data=body, headers=headers) as answer:
            text = await answer.text()
            assert answer.status == 400 and re.search(said, text), text


async def test_a_trace_that_takes_long_is_given_up_with_its_process(tmp_path, monkeypatch):
    monkeypatch.setattr("web.console.recordings_upload.MOST_SECONDS", 0.01)
    async with recorded(tmp_path) as seen:
        async with seen.http.post("/console/recordings/import", data=upload(AZURE), headers=HTML) as answer:
            assert answer.status == 408 and "code.csv is not read after" in await answer.text()


async def test_pages_outlast_a_recording_that_should_not_have_been_taken_in(tmp_path):
    bad = {"name": "bad", "started_at": 1e308, "ended_at": 1e308, "closed": "imported", "seed": "<script>"}
    async with recorded(tmp_path) as seen:
        disk = open_database(tmp_path / "traffic.db", "normal")
        disk["recordings"].insert(bad | {"who": "", "snapshot": '{"devices": [5]}'})
        row = {"recorded_at": 1e308, "model": "a", "costs": "x", "service_class": 1, "recording": 1}
        disk["requests"].insert(row)
        disk.conn.commit()
        disk.close()
        for page in ("recordings", "replays", "plans"):
            assert "bad" in await seen.page(f"/console/{page}")
        assert "rows that mean nothing" in await seen.page("/console/recordings/bad")
        async with seen.http.get("/v1/admin/recordings/bad") as answer:
            assert answer.status == 200 and (await answer.json())["seed"] == 0


async def test_a_server_that_records_nothing_says_so_on_every_page(tmp_path):
    async with simulation.engine(simulation.catalog(simulation.model("org/a")), state_dir=tmp_path) as engine:
        async with serving(engine) as url, ClientSession(url) as http:
            seen = Console(engine, http)
            assert "records no traffic" in await seen.page("/console/recordings")
            assert "Record something first" in await seen.page("/console/replays")
            assert (await post(seen, "plans", act="start", recording="x"))[0] == 400
            assert (await post(seen, "recordings", act="start", name="x"))[0] == 400


async def test_a_viewer_sees_an_operator_acts_and_only_an_admin_keeps_content(guarded, browser):
    guarded.user("eve", Role.VIEWER)
    guarded.user("ann", Role.OPERATOR)
    await log_in(browser, "eve")
    async with browser.get("/console/plans", headers=HTML) as answer:
        assert answer.status == 200 and "Work it out" not in await answer.text()
    for path in ("recordings", "replays", "plans", "replays/x/stop", "plans/x/stop", "recordings/import"):
        async with browser.post(f"/console/{path}", data={"act": "start"}) as answer:
            assert answer.status == 403, path
    await log_in(browser, "ann")
    for form in (
        {"act": "start", "name": "x", "mode": "payload", "models": "fake/encoder"},
        {"act": "delete", "name": "x"},
    ):
        async with browser.post("/console/recordings", data=form, headers=HTML) as answer:
            assert answer.status == 403 and "administrator" in await answer.text()
    async with browser.post("/console/recordings/import", data=upload(AZURE)) as answer:
        assert answer.status == 403
