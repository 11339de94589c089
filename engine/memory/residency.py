"""The states of a unit on a device, and the only moves between them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.errors import Failure
from engine.memory.footprint import Footprint
from engine.requests import ServiceClass


class Residency(StrEnum):
    ABSENT = "absent"
    LOADING = "loading"
    READY = "ready"
    LEAVING = "leaving"
    FAILED = "failed"  # may be tried again after its cool-down


MOVES: dict[Residency, frozenset[Residency]] = {
    Residency.ABSENT: frozenset({Residency.LOADING, Residency.FAILED}),
    Residency.LOADING: frozenset({Residency.READY, Residency.FAILED, Residency.ABSENT}),  # absent: lost
    Residency.READY: frozenset({Residency.LEAVING, Residency.ABSENT}),  # absent: its device is lost
    Residency.LEAVING: frozenset({Residency.ABSENT}),
    Residency.FAILED: frozenset({Residency.LOADING, Residency.ABSENT, Residency.FAILED}),
}


HELD = (Residency.READY, Residency.LOADING, Residency.LEAVING)
"""While it is one of these, its weights' bytes are held."""


@dataclass(slots=True)
class Resident:
    """One unit on one device, as the memory manager knows it."""

    unit: str
    device: str
    footprint: Footprint
    state: Residency = Residency.ABSENT
    since: float = 0.0
    last_used: float = 0.0
    used_for: dict[ServiceClass, float] = field(default_factory=dict)
    """When it was last used for each class."""
    caught_up: bool = False
    """Since it came there was a moment when nothing waited for it and nothing ran."""
    leases: int = 0
    workspace_bytes: int = 0
    """What its leases hold."""
    kv_tokens: int = 0
    """What its sequences under way may come to hold."""
    pinned: bool = False
    owed_bytes: int = 0
    """What its next batch takes, which was denied for want of it: loads leave room for that."""
    yielding: bool = False
    """Takes no more jobs: it goes when its last lease and its last sequence end, or when it has come."""
    why: str = ""
    """Why it was loaded, where nobody waited for it."""
    from_host: bool = False
    """Its weights come, or came, from host memory."""
    load_seconds: float = 0.0
    """What its last load took, from wherever its weights were kept."""
    restore_seconds: float | None = None
    """What its last load from host memory took; None where its weights would not be kept there."""
    demand: float = 0.0
    """Leases in the recent past, fading; see `used`."""
    failure: Failure | None = None
    attempts: int = 0
    parting: str = ""
    """While it loads and is to leave when it has come: why."""
    base: Resident | None = field(default=None, compare=False, repr=False)
    """Of an adapter, what it is laid over: it is there as long as this one is."""
    adapters: list[Resident] = field(default_factory=list, compare=False, repr=False)
    """Those that were ever laid over it, by whichever name."""
    in_use: bool = False
    """An adapter: sequences under way are read with it."""

    def move(self, to: Residency, now: float) -> None:
        """The only way that a state changes. A move that the table lacks is a bug."""
        assert to in MOVES[self.state], f"{self.unit} on {self.device}: {self.state} -> {to}"
        self.state, self.since, self.caught_up = to, now, False

    def lose(self, now: float) -> None:
        """Its device is gone, and all that it held there."""
        if self.state is not Residency.ABSENT:
            self.move(Residency.ABSENT, now)
        self.leases = self.workspace_bytes = self.kv_tokens = self.owed_bytes = 0
        self.pinned = self.yielding = self.in_use = False
        self.failure = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.unit, self.device)

    @property
    def reload_seconds(self) -> float:
        """What it takes to come back if it leaves now."""
        return self.load_seconds if self.restore_seconds is None else self.restore_seconds

    @property
    def resident(self) -> bool:
        """Whether it holds its weights' bytes."""
        return self.state in HELD

    @property
    def kv_bytes(self) -> int:
        return self.kv_tokens * self.footprint.kv_bytes_per_token

    @property
    def held_bytes(self) -> int:
        """What comes free when it has left, its leases' workspace apart."""
        return self.footprint.weights_bytes + self.kv_bytes

    @property
    def busy(self) -> bool:
        return self.leases > 0 or self.kv_tokens > 0 or self.in_use

    @property
    def laden(self) -> bool:
        """Whether adapters of it hold their bytes: it does not go before them."""
        return bool(self.adapters) and any(adapter.resident for adapter in self.adapters)

    @property
    def kept(self) -> bool:
        """Whether it is pinned, or an adapter of it is."""
        return self.pinned or (bool(self.adapters) and any(adapter.pinned for adapter in self.adapters))

    @property
    def lends(self) -> bool:
        """Whether leases can be had; of one that is to leave only for its sequences under way."""
        return self.state is Residency.READY and (not self.yielding or self.kv_tokens > 0)
