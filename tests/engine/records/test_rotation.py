"""Old rows become sums by the minute; what a finished recording holds stays."""

from __future__ import annotations

import json

import pytest

from engine.actors.state_store import open_database
from engine.records import rotation, stretches
from engine.records.tables import migrations, table


@pytest.fixture
def db(tmp_path):
    found = open_database(tmp_path / "traffic.db", "normal")
    migrations.apply(found)
    yield found
    found.close()


def ask(db, at: float, **fields) -> None:
    row = {"recorded_at": at, "model": "a", "service_class": 1, "outcome": "ok", "items": 2, "cost": 10}
    table(db, "requests").insert(row | {"input_tokens": 9, "output_tokens": 1, "total_seconds": 0.5} | fields)


def moments(db) -> list[float]:
    return sorted(row["recorded_at"] for row in table(db, "requests").rows)


def test_old_requests_become_sums_by_the_minute_that_never_leave(db):
    for at in (60.0, 61.0, 119.0, 120.0, 500.0):
        ask(db, at)
    ask(db, 62.0, outcome="QUEUE_FULL", total_seconds=2.0)

    assert rotation.rotate(db, oldest=200.0) == 5

    assert moments(db) == [500.0]
    sums = {(r["minute"], r["outcome"]): r for r in table(db, "minutes").rows}
    assert set(sums) == {(1, "ok"), (1, "QUEUE_FULL"), (2, "ok")}
    first = sums[1, "ok"]
    assert (first["requests"], first["items"], first["cost"], first["seconds"]) == (3, 6, 30, 1.5)
    assert sums[1, "QUEUE_FULL"]["longest"] == 2.0
    ask(db, 63.0)  # an import, or a clock that was wrong: it is added
    rotation.rotate(db, oldest=1000.0)
    assert {r["minute"]: r["requests"] for r in table(db, "minutes").rows if r["outcome"] == "ok"} == {
        1: 4,
        2: 1,
        8: 1,
    }


def test_what_a_finished_recording_holds_stays_and_what_runs_is_no_excuse(db):
    for at in (100.0, 200.0, 300.0, 400.0):
        ask(db, at)
    number = stretches.start(db, "kept", "jane", 150.0, {})
    stretches.stop(db, number, 250.0, None, {})
    stretches.start(db, "runs", "jane", 280.0, {})

    rotation.rotate(db, oldest=350.0)
    assert moments(db) == [200.0, 400.0]
    stretches.delete(db, "kept")
    rotation.rotate(db, oldest=350.0)
    assert moments(db) == [400.0]


def test_a_recording_knows_models_that_came_while_it_ran_and_those_that_went(db):
    number = stretches.start(db, "grew", "jane", 50.0, {"models": [{"id": "a", "weight": 2}, {"id": "b"}]})
    stretches.stop(db, number, 60.0, None, {"models": [{"id": "a"}, {"id": "c"}]})
    snapshot = json.loads(table(db, "recordings").get(number)["snapshot"])
    assert snapshot["models"] == [{"id": "a", "weight": 2}, {"id": "b"}, {"id": "c"}]


def test_a_recording_is_cut_to_its_last_days(db):
    for at in (100.0, 200.0, 300.0):
        ask(db, at)
    number = stretches.start(db, "long", "jane", 50.0, {})
    stretches.stop(db, number, 310.0, None, {})
    stretches.trim(db, "long", 150.0)

    (info,) = stretches.infos(db)
    assert (info.started_at, info.requests) == (160.0, 2)
    rotation.rotate(db, oldest=1000.0)
    assert moments(db) == [200.0, 300.0]


def test_what_came_from_a_file_is_cut_and_deleted_with_its_rows(db):
    header = {"started_at": 1000.0, "seconds": 100.0}
    number = stretches.insert(db, "theirs", header)
    for at in (1010.0, 1090.0):
        ask(db, at, recording=number)
    ask(db, 1050.0)  # our own, at the same time
    stretches.imported(db, number)
    assert stretches.infos(db)[0].requests == 2

    rotation.rotate(db, oldest=1e9)
    assert moments(db) == [1010.0, 1090.0]
    stretches.trim(db, "theirs", 50.0)
    assert moments(db) == [1090.0]
    stretches.delete(db, "theirs")
    assert moments(db) == []


def test_an_import_that_was_cut_short_is_taken_back(db):
    number = stretches.insert(db, "half", {"started_at": 1000.0, "seconds": 100.0})
    ask(db, 1010.0, recording=number)

    stretches.close_interrupted(db)
    assert stretches.infos(db) == [] and moments(db) == []
