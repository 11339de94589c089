"""Which lines of a batch are left, and how many may be under way. Pure: `now` is the event loop's clock."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

from engine.batches.kept import Counts

FIRST = 8
MOST = 64
"""Lines of one batch that are under way, at the start and at most."""

TRIES = 3
"""Of a line that may itself be what broke the runner."""


class Progress:
    """Every line by its number, from 0: left, under way, or answered for good."""

    def __init__(self, total: int, completed: Iterable[int] = (), failed: Iterable[int] = ()) -> None:
        self._total = total
        self._good, self._bad = set(completed), set(failed)
        self._next = 0
        self._again: list[int] = []
        self._under_way: set[int] = set()
        self._tries: dict[int, int] = {}

    @property
    def counts(self) -> Counts:
        return Counts(self._total, len(self._good), len(self._bad))

    @property
    def complete(self) -> bool:
        return len(self._good) + len(self._bad) == self._total

    def parts(self, size: int) -> tuple[tuple[int, int], ...]:
        """Of each `size` lines, how many are answered well, and how many otherwise."""
        good, bad = (Counter(line // size for line in lines) for lines in (self._good, self._bad))
        return tuple((good[part], bad[part]) for part in range(-(-self._total // size)))

    def take(self) -> int | None:
        """The first line that is left, which is under way from now on; None when there is none."""
        if self._again:
            line = heapq.heappop(self._again)
            self._under_way.add(line)
            return line
        while self._next < self._total:
            line, self._next = self._next, self._next + 1
            if line not in self._good and line not in self._bad:
                self._under_way.add(line)
                return line
        return None

    def back(self, line: int) -> None:
        """It was not answered through no fault of its own: it is left again."""
        self._under_way.remove(line)
        heapq.heappush(self._again, line)

    def tried(self, line: int) -> bool:
        """It broke something, or was near when something broke; whether it may be tried again."""
        self._tries[line] = self._tries.get(line, 0) + 1
        return self._tries[line] < TRIES

    def written(self, line: int, good: bool) -> None:
        """Its answer is on disk."""
        self._under_way.remove(line)
        self._tries.pop(line, None)
        (self._good if good else self._bad).add(line)

    def expired(self, lines: Iterable[int]) -> None:
        """They were left, and will not be run."""
        self._bad.update(lines)

    def left(self) -> list[int]:
        """All that is neither answered nor under way."""
        done = self._good | self._bad | self._under_way
        return [line for line in range(self._total) if line not in done]


class Pace:
    """How many lines go at once: one more after each round without a refusal, half after a refusal."""

    def __init__(self) -> None:
        self.width = FIRST
        self._running = 0
        self._good = 0
        self._held = 0.0
        self._halved = 0.0

    def wait(self, now: float) -> float | None:
        """0.0 when a line may go now, seconds to wait when a refusal said so, None until one is done."""
        if now < self._held:
            return self._held - now
        return 0.0 if self._running < self.width else None

    def began(self) -> None:
        self._running += 1

    def done(self) -> None:
        self._running -= 1
        self._good += 1
        if self._good >= self.width:
            self._good, self.width = 0, min(MOST, self.width + 1)

    def refused(self, after: float, now: float) -> None:
        """There was no room, and will be none for `after` seconds. Refusals in that time are one."""
        self._running -= 1
        self._good = 0
        if now >= self._halved:
            self.width = max(1, self.width // 2)
        self._held = self._halved = max(self._held, now + after)
