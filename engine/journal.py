"""What happened lately, in memory and bounded, for whoever looks. Nobody acts on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.actors.messages import Event
from engine.events import BatchDone, RequestDone, ResidencyChanged

REQUESTS = 4000
BATCHES = 4000
CHANGES = 1000
FAILED = 500
"""How many of each are remembered."""

GOOD = frozenset({"ok", "degraded"})


@dataclass(slots=True)
class Tally:
    """Of one model since the start."""

    ended: int = 0
    failed: int = 0
    cold: int = 0
    last: float = 0.0
    """When the last request arrived, on the engine's clock; 0 when none did."""
    batches: int = 0
    jobs: int = 0
    cost: int = 0
    seconds: float = 0.0
    """Device-seconds."""


@dataclass(slots=True)
class Journal:
    """Told what ends. The oldest is forgotten; what is counted is not."""

    requests: deque[RequestDone] = field(default_factory=lambda: deque(maxlen=REQUESTS))
    failed: deque[RequestDone] = field(default_factory=lambda: deque(maxlen=FAILED))
    batches: deque[BatchDone] = field(default_factory=lambda: deque(maxlen=BATCHES))
    changes: deque[ResidencyChanged] = field(default_factory=lambda: deque(maxlen=CHANGES))
    models: dict[str, Tally] = field(default_factory=dict)
    by_id: dict[str, RequestDone] = field(default_factory=dict)
    """Those of `requests`; of two with one id the later."""
    ended: int = 0
    """Requests since the start: who reads the newest again and again knows by it how many are new."""
    changed: int = 0

    def tell(self, event: Event) -> None:
        if isinstance(event, RequestDone):
            self._request(event)
        elif isinstance(event, BatchDone):
            self.batches.append(event)
            tally = self._tally(model_of(event.unit))
            tally.batches += 1
            tally.jobs += event.jobs
            tally.cost += event.cost
            tally.seconds += event.seconds
        elif isinstance(event, ResidencyChanged):
            self.changes.append(event)
            self.changed += 1

    def newest(self, count: int) -> Iterator[RequestDone]:
        """The last so many requests that are remembered, the newest first."""
        return (done for done, _ in zip(reversed(self.requests), range(count), strict=False))

    def _request(self, done: RequestDone) -> None:
        if len(self.requests) == REQUESTS and self.by_id.get(self.requests[0].request) is self.requests[0]:
            del self.by_id[self.requests[0].request]
        self.requests.append(done)
        self.by_id[done.request] = done
        self.ended += 1
        if done.outcome not in GOOD:
            self.failed.append(done)
        if done.outcome == "MODEL_NOT_FOUND":
            return  # its name is the caller's: names of no model would grow this without end
        tally = self._tally(done.model)
        tally.ended += 1
        tally.failed += done.outcome not in GOOD
        tally.cold += done.cold
        tally.last = max(tally.last, done.arrived)

    def _tally(self, model: str) -> Tally:
        found = self.models.get(model)
        if found is None:
            found = self.models[model] = Tally()
        return found


def model_of(unit: str) -> str:
    """The model that a unit is of, or an adapter: whichever version and dtype."""
    return unit.partition(":")[0].partition("#")[0].partition("@")[0]
