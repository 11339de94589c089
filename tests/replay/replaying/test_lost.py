"""A step is lost once so many are late, by so much, that nothing to come could mend it."""

from __future__ import annotations

import numpy as np
import pytest

from engine.requests import ServiceClass
from replay.replaying.log import Log
from replay.replaying.lost import Lookout
from replay.replaying.target import Outcome
from replay.trace import Trace

BEGIN = 100.0
TARGET = 1.0


def log(count: int = 1000, seconds: float = 100.0) -> Log:
    """One every tenth of a second, all sent at their moments and none answered."""
    trace = Trace.of("t", np.arange(count) * seconds / count, models=["a"] * count, input_size=np.ones(count))
    return Log(trace, BEGIN)


def sent(made: Log, until: float, latency: float, code: str = "ok") -> Log:
    """All that came until then was sent, and answered after so long where that has passed."""
    due = made.trace.arrived <= until
    made.intended[due] = made.sent[due] = BEGIN + made.trace.arrived[due]
    for row in np.flatnonzero(due & (made.trace.arrived + latency <= until)).tolist():
        made.done[row] = made.intended[row] + latency
        made.outcomes[row] = Outcome(code)
    return made


def lost_at(made: Log, now: float, since: float = 10.0) -> bool:
    return Lookout.over(made.trace, lambda model, c: TARGET, since).lost(made, BEGIN + now)


@pytest.mark.parametrize(
    ("latency", "code", "lost"),
    [
        (0.5, "ok", False),
        (3.9, "ok", False),  # every one is late, but how late still makes a difference to the knee
        (4.1, "ok", True),
        (1e9, "ok", True),  # no answer at all
        (0.1, "QUEUE_FULL", True),
        (0.1, "degraded", False),
    ],
)
def test_a_step_is_lost_when_what_came_is_late_by_more_than_counts(latency, code, lost):
    assert lost_at(sent(log(), 50.0, latency, code), 50.0) is lost


def test_a_few_that_are_late_are_forgiven_as_a_p99_forgives_them():
    made = sent(log(), 50.0, 0.2)
    made.done[150:155] += 9.0  # of 900 that count 4 may be late
    assert lost_at(made, 50.0)
    made.done[154] -= 9.0
    assert not lost_at(made, 50.0)


def test_what_comes_before_the_step_counts_or_too_little_of_it_loses_nothing():
    made = sent(log(), 9.9, 0.1, "QUEUE_FULL")
    assert not lost_at(made, 9.9)
    made = sent(log(), 11.5, 0.1, "QUEUE_FULL")  # 15 count, of which 5 have had their target's time
    assert not lost_at(made, 11.5)
    made = sent(log(), 13.5, 0.1, "QUEUE_FULL")
    assert lost_at(made, 13.5)


def test_each_class_has_a_target_of_its_own():
    made = sent(log(), 50.0, 8.0)
    made.trace.service_class[::2] = ServiceClass.BACKGROUND
    targets = {ServiceClass.STANDARD: 10.0, ServiceClass.BACKGROUND: 60.0}
    assert not Lookout.over(made.trace, lambda model, c: targets[c], 10.0).lost(made, BEGIN + 50)
    targets[ServiceClass.STANDARD] = 1.5
    assert Lookout.over(made.trace, lambda model, c: targets[c], 10.0).lost(made, BEGIN + 50)
