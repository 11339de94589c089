"""Requests prepared several at a time: a hop to a thread costs more than preparing a short text.

By class, and within a class by turns between those who ask: nobody's many requests keep another's out.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

from engine.actors.actor import Reply
from engine.adapters.family import Prepared, Preparer
from engine.bounds import prepare_within
from engine.errors import DeadlineExceeded, EngineError
from engine.going import Going
from engine.preparation import Preparation
from engine.requests import ServiceClass

AT_ONCE = 32
"""Requests of one hop."""

BYTES = 64 * 1024
"""What they may hold together: a large one goes alone, and keeps no small one waiting for its end."""

OLDEST = 8
"""Each time so many were taken by class and turn, the one that came first goes: nothing waits for ever."""

PAPERS = 2
"""Workers for documents, whose preparers wait for a child process, for seconds if a file is made so. They
have a bench of their own, and texts and pictures never wait behind them."""

Made = Sequence[Prepared | EngineError] | Exception
Work = Callable[[], Coroutine[Any, Any, object]]


class Waiting(NamedTuple):
    going: Going
    preparer: Preparer
    done: Callable[[Made], None]
    number: int


class Line:
    """Who waits for a worker, in the order in which they are served."""

    def __init__(self) -> None:
        self._classes: dict[ServiceClass, dict[str, deque[Waiting]]] = {}  # by principal, the next one first
        self._taken = 0

    def __bool__(self) -> bool:
        return bool(self._classes)

    def add(self, one: Waiting) -> None:
        of_class = self._classes.setdefault(one.going.service_class, {})
        principal = one.going.submit.request.principal
        if principal not in of_class:
            of_class[principal] = deque()
        of_class[principal].append(one)

    def next(self) -> Waiting:
        """Who is served next. Somebody must wait."""
        if self._taken % OLDEST == OLDEST - 1:
            queues = itertools.chain.from_iterable(each.values() for each in self._classes.values())
            return min((queue[0] for queue in queues), key=lambda one: one.number)
        return next(iter(self._classes[min(self._classes)].values()))[0]

    def take(self) -> Waiting:
        one = self.next()
        self._taken += 1
        service_class, principal = one.going.service_class, one.going.submit.request.principal
        queues = self._classes[service_class]
        queue = queues.pop(principal)
        queue.popleft()
        if queue:
            queues[principal] = queue  # behind the others
        elif not queues:
            del self._classes[service_class]
        return one


class Workbench:
    """Prepares what waits, by at most `workers` at once."""

    def __init__(self, preparation: Preparation, workers: int, *, slow: bool = False) -> None:
        self._preparation = preparation
        self._free = workers
        self._slow = slow
        self._at_once = 1 if slow else AT_ONCE
        self._line = Line()
        self._numbers = itertools.count()

    def add(self, going: Going, preparer: Preparer, done: Callable[[Made], None]) -> bool:
        """`done` is told what became of it. Whether another worker is to be started, which counts as at
        work from now on."""
        self._line.add(Waiting(going, preparer, done, next(self._numbers)))
        if not self._free:
            return False
        self._free -= 1
        return True

    async def work(self) -> None:
        """One worker: until nothing waits."""
        try:
            while self._line:
                if not (taken := self._take()):
                    break
                works = [partial(prepare_within, p, g.chosen, g.submit.request) for g, p, _, _ in taken]
                made = await self._preparation.each(works, slow=self._slow)
                for one, result in zip(taken, made, strict=True):
                    one.done(result)
        finally:
            self._free += 1

    def _take(self) -> list[Waiting]:
        taken, held = list[Waiting](), 0
        while self._line and len(taken) < self._at_once:
            going = self._line.next().going
            if going.submit.reply.closed:
                self._line.take().done(DeadlineExceeded())  # nobody waits for it any more
                continue
            held += going.size
            if taken and held > BYTES:
                break
            taken.append(self._line.take())
        return taken


class Benches:
    """One for what is quick to prepare, and one for documents. `spawn` starts a worker."""

    def __init__(self, preparation: Preparation, workers: int, spawn: Callable[[Work], None]) -> None:
        self._preparation = preparation
        self._spawn = spawn
        self._quick = Workbench(preparation, workers)
        self._slow = Workbench(preparation, PAPERS, slow=True)

    def hand(self, going: Going, preparer: Preparer, done: Callable[[Made], None]) -> None:
        """`done` is told what became of it."""
        bench = self._slow if going.slow else self._quick
        if bench.add(going, preparer, done):
            self._spawn(bench.work)

    async def made(self, going: Going) -> Sequence[Prepared | EngineError]:
        """For who asks for nothing else of the model. Raises what its preparer raises."""
        reply: Reply[Made] = Reply()
        self.hand(going, await self._preparation.preparer(going.key, going.chosen), reply.resolve)
        made = await reply
        if isinstance(made, Exception):
            raise made
        return made
