"""What a replay has seen so far: a place for each request, filled as it is sent and answered."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from replay.answers import Answers
from replay.replaying.target import NOT_SENT, Look, Outcome
from replay.trace import Floats, Trace

WAITING = "UNANSWERED"
"""The outcome of a request that had no answer when the replay ended."""


@dataclass(slots=True)
class Log:
    """Times on the loop's clock; nan where it did not happen."""

    trace: Trace
    begin: float = 0.0
    intended: Floats = field(init=False)
    sent: Floats = field(init=False)
    done: Floats = field(init=False)
    outcomes: list[Outcome | None] = field(init=False)
    looks: list[tuple[float, Look]] = field(default_factory=list)
    """Seconds since the begin."""
    ended: float = 0.0
    aborted: bool = False
    lost: bool = False
    """It was ended early, as what came until then says all."""
    cpu_share: float = 0.0
    """Of one core, that this process used."""

    def __post_init__(self) -> None:
        count = len(self.trace)
        self.intended, self.sent, self.done = (np.full(count, np.nan) for _ in range(3))
        self.outcomes = [None] * count

    @property
    def answered(self) -> int:
        return len(self.outcomes) - self.outcomes.count(None)

    @property
    def lag(self) -> Floats:
        """Of what was sent, how much later than intended. (sent,)"""
        sent = ~np.isnan(self.sent)
        return np.asarray(self.sent[sent] - self.intended[sent])

    @property
    def unsent(self) -> int:
        """Requests that should have gone out before the replay ended, and did not."""
        failed = sum(outcome is not None and outcome.code == NOT_SENT for outcome in self.outcomes)
        due = ~np.isnan(self.intended) & np.isnan(self.sent)
        return failed + (0 if self.aborted or self.lost else int(due.sum()))

    def answers(self) -> Answers:
        """Of every request that was to be sent before the end; latency from the intended send."""
        rows = np.flatnonzero(~np.isnan(self.sent))
        rows = rows[np.argsort(self.intended[rows], kind="stable")]
        found = [self.outcomes[row] or Outcome(WAITING) for row in rows.tolist()]
        if self.aborted:  # what had no answer yet says nothing of the server
            keep = np.array([outcome.code != WAITING for outcome in found], dtype=np.bool_)
            rows, found = rows[keep], [outcome for outcome in found if outcome.code != WAITING]
        good = np.array([outcome.code in ("ok", "degraded") for outcome in found], dtype=np.bool_)
        latency = np.where(good, self.done[rows] - self.intended[rows], math.inf)
        trace = self.trace
        return Answers.of(
            models=[trace.models[model] for model in trace.model[rows].tolist()],
            service_class=trace.service_class[rows],
            arrived=self.intended[rows] - self.begin,
            latency=latency,
            prepare=_column(found, "prepare"),
            queue=_column(found, "queue"),
            load=_column(found, "load"),
            run=_column(found, "run"),
            outcomes=[outcome.code for outcome in found],
            cold=np.array([outcome.cold for outcome in found], dtype=np.bool_),
        )


def _column(found: list[Outcome], name: str) -> NDArray[np.float64]:
    return np.array([getattr(outcome, name) for outcome in found], dtype=np.float64)
