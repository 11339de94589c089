"""Who is on a device at once: a figure of the whole device is one batch's only if that was alone there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Presence:
    alone: bool
    """So far, and for good once it ended."""


class Company:
    """For one thread: the event loop's."""

    def __init__(self) -> None:
        self._present: list[Presence] = []

    @contextmanager
    def present(self) -> Iterator[Presence]:
        """Somebody works on the device until the block ends."""
        mine = Presence(alone=not self._present)
        for other in self._present:
            other.alone = False
        self._present.append(mine)
        try:
            yield mine
        finally:
            # Those that are equal are not the same.
            self._present = [other for other in self._present if other is not mine]
