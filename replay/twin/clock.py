"""A clock that jumps to whatever is due next, and the order in which what is due at one moment happens."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from engine.actors.actor import BURST

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)

MOST_TURNS = 100_000
"""Turns at one moment: so many mean that messages go back and forth and no time passes."""


class Seated(Protocol[E_contra]):
    """One who sits at a mailbox: a core's effects are performed, and it is woken when it asks to be."""

    @property
    def wake_at(self) -> float: ...

    def wake(self) -> None: ...

    def perform(self, effects: Iterable[E_contra], /) -> None: ...


class Seat(Generic[E]):
    """An actor's mailbox and its turns, taken exactly as `engine.actors.actor` takes them: a burst of
    messages, then a look at the clock. So the order of what happens at one moment is the engine's."""

    def __init__(self, clock: Clock, sitter: Seated[E]) -> None:
        self._clock = clock
        self._soon = clock.soon
        self._take = self._turn
        self._sitter = sitter
        self._letters: deque[tuple[Callable[..., Sequence[E]], tuple[Any, ...]]] = deque()
        self._roused = False
        self.wake_at = math.inf
        """When it wants to be woken, as of its last turn: nothing else changes its mind."""

    def tell(self, handler: Callable[..., Sequence[E]], *message: Any) -> None:
        """`handler(*message, now)` is called in this seat's turn, and what it wants is performed."""
        self._letters.append((handler, message))
        if not self._roused:
            self._roused = True
            self._soon(self._take)

    def rouse(self) -> None:
        if not self._roused:
            self._roused = True
            self._soon(self._take)

    def _turn(self) -> None:
        letters, now, sitter = self._letters, self._clock.now, self._sitter
        left = BURST + 1
        while letters and left:
            handler, message = letters.popleft()
            sitter.perform(handler(*message, now))
            left -= 1
        if (wake_at := sitter.wake_at) <= now:
            sitter.wake()
            wake_at = sitter.wake_at
        self.wake_at = wake_at
        self._roused = False
        if letters:
            self.rouse()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = itertools.count()
        self._ready: deque[Callable[[], None]] = deque()
        self.soon = self._ready.append
        """Call at this moment, after all that is already to be done."""
        self._seats: tuple[Seat[Any], ...] = ()
        self.stopped = False

    def seat(self, *seats: Seat[Any]) -> None:
        """Those who are woken."""
        self._seats = seats

    def at(self, when: float, do: Callable[..., None], *args: Any) -> None:
        """Of what is due at one moment what was asked for first comes first."""
        heapq.heappush(self._events, (when, next(self._numbers), do, args))

    def later(self, seconds: float, do: Callable[..., None]) -> None:
        self.at(self.now + seconds, do)

    def run(self, until: float = math.inf) -> None:
        """Let everything happen up to `until`, or until it is stopped or nothing can happen any more."""
        events, seats = self._events, self._seats
        self._settle()
        while not self.stopped:
            due = events[0][0] if events else math.inf
            for seat in seats:
                if seat.wake_at < due:
                    due = seat.wake_at
            if due > until or due == math.inf:
                break
            if due > self.now:
                self.now = due
            while events and events[0][0] <= self.now:
                _, _, do, args = heapq.heappop(events)
                do(*args)
            for seat in seats:
                if seat.wake_at <= self.now:
                    seat.rouse()
            self._settle()
        if until < math.inf:
            self.now = max(self.now, until)

    def _settle(self) -> None:
        ready = self._ready
        for _ in range(MOST_TURNS):
            if not ready:
                return
            ready.popleft()()
        raise AssertionError("messages go back and forth and no time passes; this is a bug")
