"""Actors: private state, one mailbox, one message at a time."""

from __future__ import annotations

import heapq
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, TypeVarTuple

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from engine.errors import QueueFull, Stopped

log = logging.getLogger(__name__)
T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")
M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)

STEADY = 600.0
"""Seconds after which a supervised actor counts as well again."""

BURST = 64
"""So many messages are handled before others get a turn on the event loop."""


class Reply(Generic[T]):
    """A one-shot answer. Only the first counts, and none once nobody waits for it.

    `closing` is called when it is answered or failed: what else the asker listens to ends then too.
    """

    __slots__ = ("_answer", "_answered", "_closing", "_list", "closed", "error")

    def __init__(self, closing: Callable[[], None] | None = None) -> None:
        self.closed = False
        self._closing = closing
        self.error: Exception | None = None
        """What the asker was told instead of an answer."""
        self._answered = anyio.Event()
        self._answer: T
        self._list: dict[Reply[Any], None] = {}

    def listed(self, unanswered: dict[Reply[Any], None]) -> None:
        """Put it on this list, until it is closed."""
        unanswered[self] = None
        self._list = unanswered

    def leave(self) -> None:
        """Nobody waits for it any more."""
        self.closed = True
        self._list.pop(self, None)

    def resolve(self, value: T) -> None:
        if not self.closed:
            self._answer = value
            self._close()

    def fail(self, error: Exception) -> None:
        if not self.closed:
            self.error = error
            self._close()

    def _close(self) -> None:
        self.leave()
        self._answered.set()
        if self._closing is not None:
            self._closing()

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            yield from self._answered.wait().__await__()
        finally:
            # A cancelled asker leaves no work behind: queues skip closed replies.
            self.leave()
        if self.error is not None:
            raise self.error
        return self._answer


class Address(Protocol[M_contra]):
    """All that one actor knows of another."""

    def tell(self, message: M_contra) -> None: ...


class Mailbox(Generic[M]):
    """A typed queue with one reader. It outlives the actor that reads it.

    Asks come from outside and are refused beyond `capacity`. Tells come from actors and always
    fit: an actor tells at most once for each thing it was told.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._letters: deque[M] = deque()
        self._arrived: anyio.Event | None = None
        self._closed = False
        self._unanswered: dict[Reply[Any], None] = {}

    def __len__(self) -> int:
        return len(self._letters)

    def tell(self, message: M) -> None:
        if self._closed:
            raise Stopped(type(message).__name__)
        self._letters.append(message)
        if self._arrived is not None:
            self.rouse()

    async def ask(
        self, request: Callable[Concatenate[Reply[T], P], M], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Post `request(reply, ...)` and wait for its reply. Only the edge asks; actors tell."""
        reply: Reply[T] = Reply()
        self.post(reply, request(reply, *args, **kwargs))
        return await reply

    def post(self, reply: Reply[Any], message: M) -> None:
        """Tell a message that carries `reply`, which is failed if the actor stops before it answers.

        Raises QueueFull when too many messages wait.
        """
        if len(self._letters) >= self._capacity:
            raise QueueFull().after(0.1)
        reply.listed(self._unanswered)
        self.tell(message)

    async def receive(self) -> M | None:
        """The next message; None when `rouse` came first."""
        if self._letters:
            await checkpoint()
        else:
            self._arrived = arrived = anyio.Event()
            await arrived.wait()
        return self._letters.popleft() if self._letters else None

    def rouse(self) -> None:
        """Whoever waits in `receive` looks at the clock."""
        if (arrived := self._arrived) is not None:
            self._arrived = None  # set once, however many letters come before the reader runs
            arrived.set()

    def burst(self, most: int) -> Iterator[M]:
        """Messages that already lie here, at most `most`: taking them needs no turn of the loop."""
        for _ in range(most):
            if not self._letters:
                return
            yield self._letters.popleft()

    def fail_unanswered(self, error: Exception) -> None:
        for reply in tuple(self._unanswered):
            reply.fail(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._closed = True
        self.fail_unanswered(Stopped())


class Actor(Generic[M]):
    """Subclass and write `handle`. It is not async: it decides, it never waits."""

    def __init__(self, mailbox: Mailbox[M]) -> None:
        self.mailbox = mailbox
        self.now = -math.inf
        """When the messages at hand were taken up: those that lie there are handled as of one moment."""
        self._tasks: TaskGroup
        self._sleeping: list[float] = []

    def start(self) -> None:
        """Called once, before the first message."""

    def handle(self, message: M) -> None:
        raise NotImplementedError

    def wake_at(self) -> float:
        """When to call `wake` if no message comes first, on the event loop's clock."""
        return math.inf

    def wake(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Called once, after the last message, however it ended."""

    def spawn(self, work: Callable[[*Ts], Coroutine[Any, Any, object]], *args: *Ts) -> None:
        """Do slow work beside the mailbox. It reports back with a message; state stays here."""
        self._tasks.start_soon(work, *args)

    async def run(self) -> None:
        try:
            async with anyio.create_task_group() as self._tasks:
                self.start()
                while True:
                    self._arm(self.wake_at())
                    message = await self.mailbox.receive()
                    self.now = anyio.current_time()
                    if message is not None:
                        self.handle(message)
                        for message in self.mailbox.burst(BURST):
                            self.handle(message)
                    if self.now >= self.wake_at():
                        self.wake()
        finally:
            self.stop()
            self.mailbox.fail_unanswered(Stopped())

    def _arm(self, when: float) -> None:
        """A sleeper for a wake that is earlier than any that sleeps; not a timer for each message."""
        if not self._sleeping or when < self._sleeping[0]:
            heapq.heappush(self._sleeping, when)
            self.spawn(self._sleep, when)

    async def _sleep(self, until: float) -> None:
        await anyio.sleep_until(until)
        heapq.heappop(self._sleeping)  # each is earlier than those before it: the first is the one that woke
        self.mailbox.rouse()


async def supervise(make: Callable[[], Actor[Any]], pauses: Sequence[float] = (0.1, 1.0, 10.0)) -> None:
    """Run an actor; after a crash, a fresh one on the same mailbox. The last crash escapes.

    A life of more than `STEADY` seconds forgives the crashes before it.
    """
    crashes = 0
    while True:
        began = anyio.current_time()
        try:
            await make().run()
            return
        except Exception:
            if anyio.current_time() - began > STEADY:
                crashes = 0
            if crashes == len(pauses):
                raise
            log.exception("actor crashed; restarting in %s s", pauses[crashes])
        await anyio.sleep(pauses[crashes])
        crashes += 1
