"""Who is on a device at once: a peak of the whole device is one batch's only if that was alone. Pure."""

from __future__ import annotations

import itertools
from collections import defaultdict


class Company:
    """As `engine.devices.company` keeps it, for events in place of blocks."""

    def __init__(self) -> None:
        self._present: defaultdict[str, dict[int, bool]] = defaultdict(dict)
        self._numbers = itertools.count()

    def enter(self, device: str) -> int:
        """Somebody works on the device; a number to leave with."""
        present, number = self._present[device], next(self._numbers)
        alone = not present
        for other in present:
            present[other] = False
        present[number] = alone
        return number

    def leave(self, device: str, number: int) -> bool:
        """Whether it was alone there all the time."""
        return self._present[device].pop(number)
