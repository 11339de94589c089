"""Requests prepared several at a time: a hop to a thread costs more than preparing a short text."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from engine.adapters.family import Prepared, Preparer
from engine.bounds import prepare_within
from engine.errors import EngineError
from engine.going import Going
from engine.preparation import Preparation

AT_ONCE = 32
"""Requests of one hop."""

BYTES = 64 * 1024
"""What they may hold together: a large one goes alone, and keeps no small one waiting for its end."""

Made = Sequence[Prepared | EngineError] | Exception
Waiting = tuple[int, Going, Preparer]


class Workbench:
    """First come, first prepared, by at most `workers` at once."""

    def __init__(
        self, preparation: Preparation, workers: int, done: Callable[[int, Going, Made], None]
    ) -> None:
        self._preparation = preparation
        self._free = workers
        self._done = done
        self._waiting: deque[Waiting] = deque()

    def add(self, receipt: int, going: Going, preparer: Preparer) -> bool:
        """Whether another worker is to be started, which counts as at work from now on."""
        self._waiting.append((receipt, going, preparer))
        if not self._free:
            return False
        self._free -= 1
        return True

    async def work(self) -> None:
        """One worker: until nothing waits."""
        try:
            while self._waiting:
                taken = self._take()
                works = [partial(prepare_within, p, g.chosen, g.submit.request) for _, g, p in taken]
                made = await self._preparation.each(works)
                for (receipt, going, _), result in zip(taken, made, strict=True):
                    self._done(receipt, going, result)
        finally:
            self._free += 1

    def _take(self) -> list[Waiting]:
        taken = [self._waiting.popleft()]
        held = taken[0][1].size
        while self._waiting and len(taken) < AT_ONCE:
            held += self._waiting[0][1].size
            if held > BYTES:
                break
            taken.append(self._waiting.popleft())
        return taken
