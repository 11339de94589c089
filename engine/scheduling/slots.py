"""The slots: which are idle, which have asked for a lease, and who runs in how many. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from engine.conversation import Need


@dataclass(slots=True)
class Slots:
    devices: Mapping[str, str]
    """Every slot and the device it belongs to."""
    kinds: Mapping[str, str]
    """Kind of each device."""
    idle: dict[str, None] = field(default_factory=dict)  # in order: the longest idle first
    asked: dict[str, Need] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    """Devices that are gone, and why."""
    counts: Counter[str] = field(init=False)
    """Slots of each device that is there."""
    _taken: dict[str, int] = field(default_factory=dict)
    _asked_cost: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.counts = Counter(self.devices.values())

    def free(self, slot: str) -> None:
        """It has nothing to do. Nothing is heard of it when its device is lost."""
        if self.devices[slot] not in self.lost:
            self.idle.setdefault(slot)

    def ask(self, need: Need) -> None:
        del self.idle[need.slot]
        self.asked[need.slot] = need
        self._taken[need.unit] = self.taken(need.unit) + 1
        self._asked_cost[need.unit] = self.asked_cost(need.unit) + need.want_cost

    def answered(self, slot: str) -> Need | None:
        """What it had asked for; None when its device was lost since."""
        need = self.asked.pop(slot, None)
        if need is not None:
            self._asked_cost[need.unit] -= need.want_cost
            self._leave(need.unit)
        return need

    def started(self, unit: str) -> None:
        """A batch of `unit` runs in one of them."""
        self._taken[unit] = self.taken(unit) + 1

    def ended(self, unit: str) -> None:
        self._leave(unit)

    def taken(self, unit: str) -> int:
        """Slots that run `unit` or have asked for it."""
        return self._taken.get(unit, 0)

    def asked_cost(self, unit: str) -> int:
        return self._asked_cost.get(unit, 0)

    def idle_on(self, device: str) -> int:
        return sum(self.devices[slot] == device for slot in self.idle)

    def usable(self, kinds: Collection[str]) -> list[str]:
        """Devices of these kinds that are there."""
        return [device for device in self.counts if self.kinds[device] in kinds]

    def lose(self, device: str, reason: str) -> None:
        """The device is gone, and its slots with it."""
        self.lost[device] = reason
        del self.counts[device]
        for slot, where in self.devices.items():
            if where == device:
                self.idle.pop(slot, None)
                self.answered(slot)

    def _leave(self, unit: str) -> None:
        self._taken[unit] -= 1
        if not self._taken[unit]:
            del self._taken[unit]
            self._asked_cost.pop(unit, None)
