"""Whether a step is lost, whatever is still to come: then it need not run to its end. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from engine.requests import ServiceClass
from replay.answers import GOOD
from replay.groups import FEWEST, Target
from replay.knee import WORST
from replay.replaying.log import Log
from replay.steps import TAIL, rank
from replay.trace import Floats, Ints, Trace


@dataclass(frozen=True, slots=True)
class Stake:
    """One model's requests of one class in a step."""

    rows: Ints
    target: float
    """p99, in seconds."""
    spare: int
    """How many may be late and the step still hold."""


@dataclass(frozen=True, slots=True)
class Lookout:
    stakes: tuple[Stake, ...]

    @classmethod
    def over(cls, trace: Trace, target: Target, since: float) -> Self:
        """Of what arrives at `since` or later."""
        return cls(tuple(_stakes(trace, target, since)))

    def lost(self, log: Log, now: float) -> bool:
        """Whether more requests of a group than its p99 allows have taken `WORST` targets, or failed.

        No curve makes more of a step than that, so the knee is what it would be had the step run to its end.
        """
        latency = _so_far(log, now)
        return any(
            (latency[stake.rows] > WORST * stake.target).sum() > stake.spare
            and (log.intended[stake.rows] <= now - stake.target).sum() >= FEWEST
            for stake in self.stakes
        )


def _stakes(trace: Trace, target: Target, since: float) -> Iterator[Stake]:
    counted = np.flatnonzero(trace.arrived >= since)
    key = trace.model[counted].astype(np.int64) * 8 + trace.service_class[counted]
    for each in np.unique(key).tolist():
        model, service_class = divmod(each, 8)
        rows = counted[key == each]
        yield Stake(
            rows,
            target(trace.models[model], ServiceClass(service_class)),
            len(rows) - rank(len(rows), TAIL),
        )


def _so_far(log: Log, now: float) -> Floats:
    """(n,) seconds each has taken until its end or now; inf for what failed, nan before its moment."""
    failed = np.array([each is not None and each.code not in GOOD for each in log.outcomes], dtype=np.bool_)
    took = np.where(np.isnan(log.done), now, log.done) - log.intended
    return np.where(failed, np.inf, took)
