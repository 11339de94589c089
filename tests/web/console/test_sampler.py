from __future__ import annotations

import pytest

from engine.events import BatchDone, RequestDone
from engine.journal import Journal
from engine.view import DeviceView, EngineView, ModelView, ResidencyView
from web.console.sampler import MODEL, Sampler

RESIDENT = ResidencyView("a", "cpu", "ready", 1000)


def ended(model: str, at: float, seconds: float, outcome: str = "ok") -> RequestDone:
    spent = (0.0, 0.0, 0.0, seconds, seconds)
    return RequestDone(model, model, "encode", 1, None, at - seconds, outcome, 1, 1, 1, 0, *spent, False)


def batch(unit: str, seconds: float, jobs: int = 2, cost: int = 10) -> BatchDone:
    return BatchDone(1, unit, "cpu", "cpu/0", jobs, cost, 0.0, seconds, 0.0)


def seen(waiting: int = 0, busy_seconds: float = 0.0) -> EngineView:
    models = (ModelView("a", "loaded", (RESIDENT,), waiting=waiting), ModelView("b", "available"))
    return EngineView(models, (DeviceView("cpu", "cpu", 9, 9, slots=2, busy_seconds=busy_seconds),))


def watched(seconds: int, journal: Journal, each) -> Sampler:
    """A sampler that looked once a second; `each(second)` happens before each look."""
    sampler = Sampler()
    for second in range(seconds):
        each(second)
        sampler.look(float(second), 1e9 + second, seen(waiting=second), journal)
    return sampler


def test_rates_and_percentiles_are_of_what_ended_lately():
    journal = Journal()

    def each(second: int) -> None:
        for n in range(10):
            journal.tell(ended("a", second - 0.5, (n + 1) / 100))

    sampler = watched(20, journal, each)

    assert sampler.models["a"].rate == pytest.approx(10.0)
    assert sampler.rate == pytest.approx(10.0)
    assert sampler.models["a"].p50 == pytest.approx(0.05)
    assert sampler.models["a"].p99 == pytest.approx(0.10)


def test_what_failed_counts_as_a_request_but_not_as_a_latency():
    journal = Journal()
    sampler = watched(3, journal, lambda second: journal.tell(ended("a", second, 0.1, "QUEUE_FULL")))

    assert sampler.models["a"].rate == pytest.approx(1.0)
    assert sampler.models["a"].p50 is None
    assert journal.models["a"].failed == 3


def test_percentiles_forget_what_ended_a_minute_ago():
    journal = Journal()
    sampler = watched(100, journal, lambda second: second or journal.tell(ended("a", 0.0, 0.5)))

    assert sampler.models["a"].p99 is None
    assert sampler.models["a"].rate == 0.0


def test_shares_are_of_the_device_seconds_of_the_last_minute():
    journal = Journal()

    def each(second: int) -> None:
        journal.tell(batch("a", 0.3))
        journal.tell(batch("b@float16", 0.1))

    sampler = watched(70, journal, each)

    assert sampler.models["a"].share == pytest.approx(0.75)
    assert sampler.models["b"].share == pytest.approx(0.25)


def test_a_sample_has_what_happened_since_the_one_before():
    journal = Journal()

    def each(second: int) -> None:
        journal.tell(ended("a", second - 0.1, 0.2))
        journal.tell(batch("a", 0.5, jobs=4, cost=100))

    columns = watched(5, journal, each).columns("model:a", True, 1e9 + 3)
    sample = dict(zip(MODEL, (column[-1] for column in columns[1:]), strict=True))

    assert columns[0] == [1e9 + 4]
    assert sample["rate"] == pytest.approx(1.0)
    assert sample["p50"] == pytest.approx(0.2)
    assert (sample["waiting"], sample["bytes"], sample["cost"], sample["jobs"]) == (4, 1000, 100, 4)
    assert sample["busy"] == pytest.approx(0.5)


def test_while_nobody_watches_there_is_a_sample_a_minute_and_none_by_the_second():
    journal, sampler = Journal(), Sampler()
    for minute in range(4):
        journal.tell(ended("a", minute * 60.0 - 1, 0.1))
        journal.tell(ended("a", minute * 60.0 - 1, 0.3))
        sampler.look(minute * 60.0, 1e9 + minute * 60, seen(), journal)

    assert sampler.columns("model:a", True, 0.0)[0] == []
    times, rate, p50, *_ = sampler.columns("model:a", False, 0.0)
    assert times == [1e9 + 60, 1e9 + 120, 1e9 + 180]
    assert rate[-1] == pytest.approx(2 / 60)
    assert p50[-1] == pytest.approx(0.1)


def test_a_name_of_nothing_has_empty_columns():
    assert Sampler().columns("model:none", True, 0.0) == [[] for _ in range(1 + len(MODEL))]


def test_a_long_batch_that_ends_in_one_second_keeps_no_more_slots_busy_than_there_are():
    journal, sampler = Journal(), Sampler()
    for second, spent in enumerate((0.0, 0.0, 7.0)):
        if spent:
            journal.tell(batch("a", spent))
        sampler.look(float(second), 1e9 + second, seen(busy_seconds=spent), journal)

    def last(name: str, column: int) -> float | None:
        return sampler.columns(name, True, 0.0)[column][-1]

    assert last("model:a", 1 + MODEL.index("busy")) == 2
    assert (last("device:cpu", 2), last("device:cpu", 3), last("server", 3)) == (2, 1, 2)
