"""The waiting jobs of one class of a lane: fair by cost between principals, by due time within each. Pure."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.scheduling.lanes import Job

PAST = 1024
"""So many principals without a waiting job are remembered with what they had."""

Entry = tuple[float, int, "Job"]
"""What a job is ordered by, the number it came with, and the job."""


class Turns:
    """Start-time fair queueing (Goyal, Vin and Cheng, 1996) by cost between principals.

    Each has a virtual start, what it has had so far in cost; the smallest goes next. One that comes
    anew starts where the others are, so that idling earns nothing. Only what goes into a batch is
    charged: a job may be taken out, looked at and put back.
    """

    __slots__ = ("_order", "_past", "_queues", "_starts", "_virtual", "jobs")

    def __init__(self) -> None:
        self.jobs = 0
        self._queues: dict[str, list[Entry]] = {}
        self._starts: dict[str, int] = {}
        self._order: list[tuple[int, str]] = []
        self._past: dict[str, int] = {}  # as many as PAST at most
        self._virtual = 0

    def __iter__(self) -> Iterator[Job]:
        return (job for queue in self._queues.values() for _, _, job in queue)

    def jobs_of(self, principal: str) -> int:
        return len(self._queues.get(principal, ()))

    def add(self, entry: Entry) -> None:
        self.jobs += 1
        principal = entry[2].principal
        queue = self._queues.get(principal)
        if queue is not None:
            heappush(queue, entry)
            return
        start = max(self._virtual, self._past.pop(principal, 0))
        self._queues[principal], self._starts[principal] = [entry], start
        bisect.insort(self._order, (start, principal))

    def next(self) -> Job:
        """The job due first of the principal whose turn it is. Something must wait."""
        return self._queues[self._order[0][1]][0][2]

    def pop_next(self) -> Entry:
        """Take out that job."""
        return self.pop_of(self._order[0][1])

    def pop_of(self, principal: str) -> Entry:
        """Take out the job due first of this principal, whoever's turn it is."""
        if self._order[0][0] > self._virtual:
            self._virtual = self._order[0][0]
        queue = self._queues[principal]
        entry = heappop(queue)
        self.jobs -= 1
        if not queue:
            del self._queues[principal]
            start = self._starts.pop(principal)
            del self._order[bisect.bisect_left(self._order, (start, principal))]
            self._remember(principal, start)
        return entry

    def charge(self, principal: str, cost: int) -> None:
        """Work of `cost` of this principal goes into a batch."""
        start = self._starts.get(principal)
        if start is None:
            self._remember(principal, max(self._virtual, self._past.pop(principal, 0)) + cost)
            return
        self._starts[principal] = start + cost
        if len(self._order) == 1:  # there is nobody to change places with
            self._order[0] = (start + cost, principal)
            return
        del self._order[bisect.bisect_left(self._order, (start, principal))]
        bisect.insort(self._order, (start + cost, principal))

    def _remember(self, principal: str, start: int) -> None:
        if start > self._virtual:
            self._past[principal] = start
        if len(self._past) > PAST:
            del self._past[next(iter(self._past))]
