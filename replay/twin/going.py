"""One request between its arrival and its end, as whoever sent it sees it. Pure."""

from __future__ import annotations

import msgspec

from engine.errors import EngineError
from replay.twin.results import DEGRADED, OK


class Going(msgspec.Struct, gc=False):
    """Times are on the twin's clock."""

    index: int
    unit: str
    received: float
    deadline: float
    answer_tokens: int
    cold: bool = False
    degraded: bool = False
    queued_at: float = 0.0
    left: int = 0
    """Jobs that have not come to their end."""
    started: bool = False
    first_started: float = 0.0
    last_finished: float = 0.0
    load_seconds: float = 0.0
    closed: bool = False
    ended: bool = False
    ended_at: float = 0.0
    outcome: str = OK

    @property
    def answered(self) -> bool:
        return self.outcome in (OK, DEGRADED)

    def degrade(self, unit: str) -> None:
        """Another unit is to answer."""
        self.unit, self.degraded = unit, True

    def start(self, now: float, ready_at: float) -> None:
        """Some of its jobs went into a batch; its unit last became ready at `ready_at`."""
        if self.started:
            return
        self.started, self.first_started = True, now
        if self.cold:
            self.load_seconds = max(0.0, min(now, ready_at) - self.queued_at)

    def fail(self, error: EngineError, now: float) -> None:
        if not self.closed:
            self.closed, self.outcome, self.ended_at = True, error.code, now

    def end(self, now: float) -> None:
        """Its last job has ended. What comes after its deadline comes to nobody."""
        self.ended = True
        if self.closed:
            return
        self.closed, self.ended_at = True, now
        if now >= self.deadline:
            self.outcome = "DEADLINE_EXCEEDED"
        elif self.degraded:
            self.outcome = DEGRADED
