from __future__ import annotations

from engine import journal
from engine.events import BatchDone, RequestDone, ResidencyChanged
from engine.journal import Journal


def done(request: str, model: str = "a", outcome: str = "ok", cold: bool = False) -> RequestDone:
    return RequestDone(request, model, "encode", 1, None, 5.0, outcome, 1, 1, 1, 0, 0, 0, 0, 0, 1.0, cold)


def test_the_oldest_is_forgotten_and_what_was_counted_is_not():
    kept = Journal()
    for n in range(journal.REQUESTS + 10):
        kept.tell(done(str(n), cold=n == 0))

    assert len(kept.requests) == journal.REQUESTS
    assert kept.requests[0].request == "10"
    assert (kept.ended, kept.models["a"].ended, kept.models["a"].cold) == (journal.REQUESTS + 10,) * 2 + (1,)


def test_the_newest_come_first():
    kept = Journal()
    for n in range(5):
        kept.tell(done(str(n)))

    assert [each.request for each in kept.newest(3)] == ["4", "3", "2"]


def test_a_failure_outlasts_many_successes():
    kept = Journal()
    kept.tell(done("bad", outcome="QUEUE_FULL"))
    for n in range(journal.REQUESTS):
        kept.tell(done(str(n)))

    assert [each.request for each in kept.failed] == ["bad"]
    assert kept.models["a"].failed == 1


def test_names_of_no_model_take_no_memory():
    kept = Journal()
    for n in range(100):
        kept.tell(done(str(n), model=f"made up {n}", outcome="MODEL_NOT_FOUND"))

    assert kept.models == {}
    assert len(kept.failed) == 100


def test_batches_count_for_their_model_whichever_version_and_dtype_ran():
    kept = Journal()
    for unit in ("a", "a@float16", "a#2"):
        kept.tell(BatchDone(1, unit, "cpu", "cpu/0", 3, 30, 0.0, 0.5, 0.0))
    kept.tell(ResidencyChanged("a", "cpu", "loaded", 1.0))

    tally = kept.models["a"]
    assert (tally.batches, tally.jobs, tally.cost, tally.seconds) == (3, 9, 90, 1.5)
    assert (len(kept.changes), kept.changed) == (1, 1)


def test_a_request_is_found_by_its_name_as_long_as_it_is_remembered_and_of_two_the_later():
    kept = Journal()
    first, second = done("again"), done("again", outcome="QUEUE_FULL")
    kept.tell(first)
    kept.tell(second)
    for n in range(journal.REQUESTS - 1):
        kept.tell(done(str(n)))

    assert kept.by_id["again"] is second
    kept.tell(done("last"))
    assert "again" not in kept.by_id
    assert len(kept.by_id) == journal.REQUESTS
