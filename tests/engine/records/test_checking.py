"""Files whose fields are of another kind than they must be: refused by line, whoever sent them."""

from __future__ import annotations

import pytest

from engine.actors.state_store import open_database
from engine.errors import EngineError, InvalidInput
from engine.records import files
from tests.engine.actors.conftest import REAL_CLOCK
from tests.engine.records.conftest import ASKED, HEADER, end, recorded_engine, written
from tests.simulation import request


def deep(levels: int) -> dict:
    found: dict = {}
    for _ in range(levels):
        found = {"x": found}
    return found


ILL_TYPED = {
    "a date that is none": ({**HEADER, "started_at": 1e308}, "started_at is a number of seconds from 0"),
    "a date before all": ({**HEADER, "started_at": -1e18}, "started_at"),
    "a length without end": ({**HEADER, "seconds": 1e300}, "before the year 10000"),
    "a text for a length": ({**HEADER, "seconds": "2"}, "seconds is a number"),
    "a seed of 65 bits": ({**HEADER, "seed": 9999999999999999999}, "seed is a whole number of 64 bits"),
    "an object for a seed": ({**HEADER, "seed": {"a": 1}}, "seed"),
    "a text for a seed": ({**HEADER, "seed": "<script>"}, "seed"),
    "a list for a snapshot": ({**HEADER, "snapshot": [5]}, "snapshot is an object"),
    "a number for a device": ({**HEADER, "snapshot": {"devices": [5]}}, "devices of the snapshot is a list"),
    "a snapshot without a floor": ({**HEADER, "snapshot": deep(40)}, "more than 32 levels"),
    "a number for a name": ({**HEADER, "closed": 5}, "closed is text"),
}


@pytest.mark.parametrize("what", ILL_TYPED)
def test_a_header_with_a_field_of_another_kind_is_refused_with_its_line(tmp_path, what):
    header, said = ILL_TYPED[what]
    path = written(tmp_path / "x.jsonl.gz", header, ASKED, end(request=1))
    with pytest.raises(InvalidInput, match=f"^it:1: .*{said}"):
        list(files.read(path, "it"))


ILL_ROWS = {
    "an object for a kind": ({"is": {}, "at": 1}, "is nothing that a recording has"),
    "a moment beyond": ({**ASKED, "at": 1e300}, "needs `at`"),
    "a moment before": ({**ASKED, "at": -1}, "needs `at`"),
    "a yes for a moment": ({**ASKED, "at": True}, "needs `at`"),
    "a text for a duration": ({**ASKED, "total_seconds": "long"}, "total_seconds is a finite number"),
    "a list for a model": ({**ASKED, "model": ["a"]}, "model is text"),
    "a text without end": ({**ASKED, "outcome": "x" * 70_000}, "outcome is text of at most 65536"),
    "65 bits": ({**ASKED, "items": 2**63}, "items is a whole number"),
    "half an item": ({**ASKED, "items": 0.5}, "items is a whole number"),
    "costs that are none": ({**ASKED, "costs": "1,x"}, "costs is numbers with commas"),
    "a class that is none": ({**ASKED, "service_class": 9}, "service_class is one of 0, 1, 2"),
    "a task that is a list": ({**ASKED, "task": []}, "task is one of encode"),
    "a text for lines": ({"is": "sample", "at": 1, "lines": "much"}, "lines is an object with numbers"),
    "an object of texts": ({"is": "sample", "at": 1, "units": {"a": "b"}}, "units is an object with numbers"),
}


@pytest.mark.parametrize("what", ILL_ROWS)
def test_a_row_with_a_field_of_another_kind_is_refused_with_its_line(tmp_path, what):
    row, said = ILL_ROWS[what]
    path = written(tmp_path / "x.jsonl.gz", HEADER, ASKED, row, end(request=2))
    with pytest.raises(InvalidInput, match=f"^it:3: .*{said}"):
        list(files.read(path, "it"))


def test_what_a_recording_does_not_know_is_left_out_and_a_whole_float_is_a_number(tmp_path):
    row = {**ASKED, "items": 2.0, "recording": 1, "id": 7, "theirs": {"x": [1]}, "session": None}
    path = written(tmp_path / "x.jsonl.gz", HEADER, row, end(request=1))
    (_, _), (said, found) = files.read(path)
    assert said == "request" and found == {**{k: v for k, v in ASKED.items() if k != "is"}, "items": 2}


@pytest.mark.anyio
@REAL_CLOCK
async def test_whatever_an_import_raises_only_the_import_fails(tmp_path, caplog):
    async with recorded_engine(tmp_path) as engine:
        with pytest.raises(EngineError, match="the server's log has more"):
            await engine.recordings.take_in("x", "no path")  # type: ignore[arg-type]
        for number, (row, _) in enumerate(ILL_ROWS.values()):
            path = written(tmp_path / "upload.jsonl.gz", HEADER, ASKED, row, end(request=2))
            with pytest.raises(InvalidInput, match=r"^upload.jsonl.gz:3") as refused:
                await engine.recordings.take_in(f"x{number}", path)
            assert str(tmp_path) not in str(refused.value)
        await engine.submit(request("a", "still here"))
        assert await engine.recordings.infos() == []
    assert "AttributeError" in caplog.text and "no path" not in caplog.text


@pytest.mark.anyio
@REAL_CLOCK
async def test_a_row_that_an_older_server_took_in_is_listed_and_can_be_deleted(tmp_path):
    bad = {"name": "bad", "started_at": 1e308, "ended_at": 1e308, "closed": "imported", "seed": "<script>"}
    async with recorded_engine(tmp_path):
        pass
    disk = open_database(tmp_path / "traffic.db", "normal")
    disk["recordings"].insert(bad | {"who": "", "snapshot": "[5]"})
    disk["losses"].insert_all([{"recorded_at": 1.0, "rows": 2**62, "recording": 1}] * 3)
    disk.close()
    async with recorded_engine(tmp_path) as engine:
        (info,) = await engine.recordings.infos()
        assert (info.started_at, info.ended_at, info.seed) == (0.0, 0.0, 0) and info.lost > 2**62
        await engine.recordings.delete("bad")
        assert await engine.recordings.infos() == []
