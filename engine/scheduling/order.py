"""The lanes that have work, in the order of their shares, for each device and class. Pure."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.requests import ServiceClass


@dataclass(slots=True)
class Order:
    """Kept sorted, so that a free slot looks at the first few and not at every lane there is."""

    _lists: dict[tuple[str, ServiceClass], list[tuple[float, str]]] = field(default_factory=dict)
    _places: dict[str, tuple[ServiceClass, float, tuple[str, ...]]] = field(default_factory=dict)

    def put(self, unit: str, service_class: ServiceClass, virtual: float, devices: tuple[str, ...]) -> None:
        """`unit` has work of this class, has had so much of its share, and can run on these devices."""
        place = (service_class, virtual, devices)
        if self._places.get(unit) == place:
            return
        self.drop(unit)
        self._places[unit] = place
        for device in devices:
            bisect.insort(self._lists.setdefault((device, service_class), []), (virtual, unit))

    def drop(self, unit: str) -> None:
        """It has no work, or no place to do it."""
        place = self._places.pop(unit, None)
        if place is None:
            return
        service_class, virtual, devices = place
        for device in devices:
            lanes = self._lists[device, service_class]
            del lanes[bisect.bisect_left(lanes, (virtual, unit))]

    def __bool__(self) -> bool:
        """Whether any lane has work and a place to do it."""
        return bool(self._places)

    def lanes(self, device: str, service_class: ServiceClass) -> Sequence[tuple[float, str]]:
        """What each has had of its share, and its unit: who has had least first."""
        return self._lists.get((device, service_class), ())
