"""A named stretch of traffic: what is in it, what outlasts a restart, what may be given away."""

from __future__ import annotations

import os
import stat

import anyio
import pytest

from engine.errors import InvalidInput, UnknownRecording
from engine.records import content, files
from engine.records.views import PayloadWish
from replay.recording import read_database, read_file
from tests.engine.actors.conftest import REAL_CLOCK
from tests.engine.records.conftest import recorded_engine
from tests.simulation import prompt, request

pytestmark = [pytest.mark.anyio, REAL_CLOCK]


async def some_traffic(engine) -> None:
    await engine.submit(request("a", "one two", "three", session="s-hash", principal="jane"))
    await engine.submit(request("b", "four five six", deadline=anyio.current_time() + 5))
    await engine.submit(prompt("g", "go on", 4))
    with pytest.raises(InvalidInput):
        await engine.submit(request("a", id="empty"))


async def test_a_recording_holds_what_was_asked_and_how_the_server_was(tmp_path):
    async with recorded_engine(tmp_path) as engine:
        await engine.submit(request("a", "before it began"))
        await engine.recordings.start("monday", "jane")
        assert engine.view().recorder.running.name == "monday"
        await some_traffic(engine)
        await engine.pin("b", "jane", "it is asked for")
        assert await engine.recordings.stop() == "monday"
        assert engine.view().recorder.running is None
        await engine.submit(request("a", "after it ended"))
        (info,) = await engine.recordings.infos()
        found = read_database(tmp_path / "traffic.db", "monday")

    assert (info.name, info.closed, info.requests, info.who) == ("monday", "stopped", 4, "jane")
    trace = found.trace()
    assert [trace.models[m] for m in trace.model] == ["a", "b", "g", "a"]
    kinds = [trace.kinds[k] for k in trace.kind]
    assert [kind.costs for kind in kinds] == [(2, 1), (3,), (2,), ()]
    assert [kind.task for kind in kinds] == ["encode", "encode", "generate", "encode"]
    assert kinds[1].deadline == pytest.approx(5, abs=1) and kinds[0].principal == "jane"
    assert kinds[2].kv_tokens == 6 and trace.output_size[2] == 4
    assert trace.session.tolist() == [0, -1, -1, -1]
    answers = found.answers()
    assert answers.told() == ["ok", "ok", "ok", "INVALID_INPUT"]
    assert answers.latency[3] == float("inf") and answers.latency[0] < 5
    assert [change["event"] for change in found.changes] == ["loaded", "loaded"]  # a was there before
    assert [act["action"] for act in found.acts] == ["record", "pin"]
    assert found.batches["cost"][0] == 3
    assert found.samples[0]["slots"] == 1 and "weights" in found.samples[0]["lines"]
    snapshot = found.snapshot
    assert {spec["id"] for spec in snapshot["models"]} == {"a", "b", "g"}
    assert [r["unit"] for r in snapshot["residents"]] == ["a"]
    # What came while it ran is known by its end.
    assert snapshot["footprints"].keys() == {"a", "b", "g"}
    assert {load["unit"] for load in snapshot["loads"] if load["load_seconds"]} == {"a", "b", "g"}
    assert {curve["unit"] for curve in snapshot["curves"]} >= {"a", "b"}
    assert snapshot["devices"][0]["name"] == "simulated:a"
    assert snapshot["settings"]["headroom"] == 0 and "session_key" not in snapshot["settings"]


async def test_what_ran_when_the_server_stopped_ends_with_its_last_row(tmp_path):
    async with recorded_engine(tmp_path) as engine:
        await engine.recordings.start("cut")
        await some_traffic(engine)
    async with recorded_engine(tmp_path) as engine:
        (info,) = await engine.recordings.infos()
        assert engine.view().recorder.running is None
        await engine.submit(request("a", "of another life"))
        await engine.recordings.start("next")  # nothing is in its way

    assert (info.closed, info.requests) == ("interrupted", 4)
    assert info.started_at < info.ended_at
    assert len(read_database(tmp_path / "traffic.db", "cut")) == 4


async def test_one_recording_at_a_time_and_names_are_their_own(tmp_path):
    async with recorded_engine(tmp_path) as engine:
        await engine.recordings.start("one")
        with pytest.raises(InvalidInput, match="one runs; stop it first"):
            await engine.recordings.start("two")
        with pytest.raises(InvalidInput, match="runs; stop it"):
            await engine.recordings.delete("one")
        await engine.recordings.stop()
        with pytest.raises(InvalidInput, match="one already"):
            await engine.recordings.start("one")
        with pytest.raises(InvalidInput, match="is no name"):
            await engine.recordings.start("../../etc")
        with pytest.raises(InvalidInput, match="No recording runs"):
            await engine.recordings.stop()
        await engine.recordings.delete("one")
        with pytest.raises(UnknownRecording, match="there is none yet"):
            await engine.recordings.delete("one")
        history = await engine.operators.history(20)

    told = [(row.action, row.target, row.outcome) for row in reversed(history)]
    assert told[0] == ("record", "one", "ok") and told[1] == ("record", "two", "INVALID_INPUT")


async def test_a_file_holds_all_of_it_and_comes_back_in(tmp_path):
    out = tmp_path / "monday.jsonl.gz"
    async with recorded_engine(tmp_path / "here") as engine:
        await engine.recordings.start("monday")
        await some_traffic(engine)
        await engine.recordings.stop()
        await engine.recordings.export("monday", out, shareable=False)
    async with recorded_engine(tmp_path / "there") as engine:
        await engine.submit(request("a", "its own"))
        await engine.recordings.take_in("copy", out)
        (info,) = await engine.recordings.infos()
        copy = read_database(tmp_path / "there" / "traffic.db", "copy")
        await engine.recordings.export("copy", tmp_path / "again.jsonl.gz", shareable=False)
        await engine.recordings.delete("copy")

    first = read_file(out)
    assert (info.closed, info.requests, copy.seed) == ("imported", 4, first.seed)
    for found in (copy, read_file(tmp_path / "again.jsonl.gz")):
        for name, column in first.requests.items():
            if column.dtype == float:
                assert found.requests[name] == pytest.approx(column, abs=2e-6), name
            else:
                assert found.requests[name].tolist() == column.tolist(), name
        assert found.snapshot == first.snapshot and found.changes == first.changes


async def test_what_may_be_given_away_tells_nobody_who_asked(tmp_path):
    out = tmp_path / "shared.jsonl.gz"
    async with recorded_engine(tmp_path) as engine:
        await engine.recordings.start("monday")
        await some_traffic(engine)
        await engine.submit(request("a", " ".join(["w"] * 1003), session="s-hash"))
        await engine.recordings.stop()
        await engine.recordings.export("monday", out, shareable=True)

    found = read_file(out)
    assert found.started == 0 and found.snapshot.keys() == {"devices"} and not found.acts
    assert set(found.requests["principal"]) == {""}
    assert found.requests["session"].tolist() == ["s1", "", "", "", "s1"]
    assert found.requests["model"].tolist() == ["model-1", "model-2", "model-3", "model-1", "model-1"]
    assert found.requests["costs"][-1] == "1024"
    assert "jane" not in str(list(files.read(out)))


async def test_content_is_kept_only_where_it_was_asked_for(tmp_path):
    wish = PayloadWish(models=("a",), seconds=60, max_bytes=100_000)
    async with recorded_engine(tmp_path) as engine:
        await engine.submit(request("a", "before"))
        await engine.recordings.start("with", payloads=wish)
        assert engine.view().recorder.running.payload_models == ("a",)
        await engine.submit(request("a", "kept", id="q1"))
        await engine.submit(request("b", "not kept"))
        await engine.recordings.stop()
        await engine.submit(request("a", "after"))
        (info,) = await engine.recordings.infos()
        path = content.place(tmp_path / "traffic.db", "with")
        kept = [(name, content.unpacked(body)[1][0].text) for _, name, _, body in content.read(path)]
        mode = stat.S_IMODE(os.stat(path).st_mode)
        await engine.recordings.delete("with")

    assert kept == [("q1", "kept")] and info.payloads == 1
    assert mode == 0o600 and not path.exists()


@pytest.mark.parametrize("limit", [{"max_bytes": 700}, {"seconds": 1.2}], ids=["size", "time"])
async def test_content_ends_at_its_limit_and_the_recording_goes_on(tmp_path, limit):
    wish = PayloadWish(**({"models": ("a",), "seconds": 60, "max_bytes": 100_000} | limit))
    async with recorded_engine(tmp_path) as engine:
        await engine.recordings.start("with", payloads=wish)
        with anyio.fail_after(20):
            asked = 0
            while engine.view().recorder.running.payload_models:
                await engine.submit(request("a", "again and again", id=f"q{asked}"))
                asked += 1
                await anyio.sleep(0.1)
        await engine.submit(request("a", "more"))
        await engine.recordings.stop()
        (info,) = await engine.recordings.infos()

    assert 0 < info.payloads <= asked
    assert info.requests == asked + 1
