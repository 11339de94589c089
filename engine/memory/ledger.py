"""Who holds which bytes of one device. The sum never exceeds the budget. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class Line(StrEnum):
    """What bytes are held for."""

    CONTEXT = "context"  # the framework's own, before any model
    WEIGHTS = "weights"
    WORKSPACE = "workspace"  # of batches that run
    KV = "kv"
    FOREIGN = "foreign"  # other processes on the card


@dataclass(slots=True)
class Ledger:
    """Entries by (line, owner): a unit for weights and KV, a lease's number for workspace."""

    total_bytes: int
    headroom: float
    _held: dict[tuple[Line, str], int] = field(default_factory=dict)
    _sums: dict[Line, int] = field(default_factory=lambda: dict.fromkeys(Line, 0))
    used_bytes: int = field(default=0, init=False)
    """On all lines."""

    @property
    def budget_bytes(self) -> int:
        return int(self.total_bytes * (1 - self.headroom))

    @property
    def free_bytes(self) -> int:
        return self.budget_bytes - self.used_bytes

    def hold(self, line: Line, owner: str, size_bytes: int) -> bool:
        """Set what `owner` holds on `line`; False, and nothing changes, when that is too much.

        Giving bytes back always succeeds.
        """
        before = self._held.get((line, owner), 0)
        more = size_bytes - before
        if more > 0 and more > self.free_bytes:
            return False
        self._sums[line] += more
        self.used_bytes += more
        if size_bytes:
            self._held[line, owner] = size_bytes
        else:
            self._held.pop((line, owner), None)
        return True

    def held(self, line: Line, owner: str) -> int:
        return self._held.get((line, owner), 0)

    def on_line(self, line: Line) -> int:
        return self._sums[line]

    def lines(self) -> dict[Line, int]:
        """Bytes on each line."""
        return dict(self._sums)

    def observe_foreign(self, size_bytes: int) -> None:
        """What other processes hold is seen, not asked: it may leave the device over its budget."""
        self._held.pop((Line.FOREIGN, ""), None)
        self.used_bytes += size_bytes - self._sums[Line.FOREIGN]
        self._sums[Line.FOREIGN] = size_bytes
        if size_bytes:
            self._held[Line.FOREIGN, ""] = size_bytes

    def clear(self) -> None:
        """The device is gone, and nobody holds anything there."""
        self._held.clear()
        self._sums = dict.fromkeys(Line, 0)
        self.used_bytes = 0

    def __iter__(self) -> Iterator[tuple[Line, str, int]]:
        return ((line, owner, size) for (line, owner), size in self._held.items())

    def check(self) -> None:
        """Raise AssertionError when the books do not balance. Tests call it at every idle moment."""
        for each in Line:
            assert self._sums[each] == sum(size for line, _, size in self if line is each)
        assert self.used_bytes == sum(self._sums.values())
        assert all(size > 0 for _, _, size in self)
        own = self.used_bytes - self.held(Line.FOREIGN, "")
        assert own <= self.budget_bytes, f"{own} held of {self.budget_bytes}"
