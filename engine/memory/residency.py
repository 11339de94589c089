"""The states of a unit on a device, and the only moves between them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.errors import Failure
from engine.memory.footprint import Footprint


class Residency(StrEnum):
    ABSENT = "absent"
    LOADING = "loading"
    READY = "ready"
    LEAVING = "leaving"
    FAILED = "failed"  # may be tried again after its cool-down


MOVES: dict[Residency, frozenset[Residency]] = {
    Residency.ABSENT: frozenset({Residency.LOADING, Residency.FAILED}),
    Residency.LOADING: frozenset({Residency.READY, Residency.FAILED}),
    Residency.READY: frozenset({Residency.LEAVING}),
    Residency.LEAVING: frozenset({Residency.ABSENT}),
    Residency.FAILED: frozenset({Residency.LOADING, Residency.ABSENT, Residency.FAILED}),
}


@dataclass(slots=True)
class Resident:
    """One unit on one device, as the memory manager knows it."""

    unit: str
    device: str
    footprint: Footprint
    state: Residency = Residency.ABSENT
    since: float = 0.0
    last_used: float = 0.0
    leases: int = 0
    kv_tokens: int = 0
    """What its sequences under way may come to hold."""
    pinned: bool = False
    owed_bytes: int = 0
    """What its next batch takes, which was denied for want of it: loads leave room for that."""
    yielding: bool = False
    """Takes no more jobs: it goes when its last lease and its last sequence end."""
    load_seconds: float = 0.0
    """What its last load took."""
    demand: float = 0.0
    """Leases in the recent past, fading; see `used`."""
    failure: Failure | None = None
    attempts: int = 0

    def move(self, to: Residency, now: float) -> None:
        """The only way that a state changes. A move that the table lacks is a bug."""
        assert to in MOVES[self.state], f"{self.unit} on {self.device}: {self.state} -> {to}"
        self.state, self.since = to, now

    @property
    def resident(self) -> bool:
        """Whether it holds its weights' bytes."""
        return self.state in (Residency.LOADING, Residency.READY, Residency.LEAVING)

    @property
    def kv_bytes(self) -> int:
        return self.kv_tokens * self.footprint.kv_bytes_per_token

    @property
    def held_bytes(self) -> int:
        """What comes free when it has left, its leases' workspace apart."""
        return self.footprint.weights_bytes + self.kv_bytes

    @property
    def busy(self) -> bool:
        return self.leases > 0 or self.kv_tokens > 0

    @property
    def lends(self) -> bool:
        """Whether leases can be had; of one that is to leave only for its sequences under way."""
        return self.state is Residency.READY and (not self.yielding or self.kv_tokens > 0)
