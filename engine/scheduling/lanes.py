"""What waits: one lane per unit, jobs in it by class, fair between principals, by due time. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush

import msgspec

from engine.requests import ServiceClass
from engine.scheduling.turns import Entry, Turns


class Job(msgspec.Struct, frozen=True, gc=False):
    """One input on its way to a model. Times are absolute, on the engine's clock."""

    id: str
    request: str
    unit: str
    cost: int
    service_class: ServiceClass
    arrived: float
    due: float
    """When it should be done: its deadline, or its arrival and its class's target."""
    deadline: float = math.inf
    kv_tokens: int = 0
    max_batch_cost: int = 1 << 62
    max_batch_jobs: int = 1 << 62
    principal: str = ""
    """Who asked: jobs of one class are shared fairly between these. Nobody in particular is one too."""
    attempt: int = 1
    """The second is the last."""
    adapters: tuple[str, ...] = ()
    """Units of the adapters that it is read with: none, one, or one for each part of it."""


def read_with(jobs: Iterable[Job]) -> set[str]:
    """All adapters that any of these needs."""
    return {adapter for job in jobs for adapter in job.adapters}


SLACK = 64
"""Entries of jobs that have left may lie in a heap until they are this many more than those that wait. Every
so many jobs that come, that is looked at."""


class Lane:
    """The waiting jobs of one unit. Taking out and putting in are logarithmic in their number."""

    __slots__ = (
        "_by_arrival",
        "_by_due",
        "_here",
        "_numbers",
        "_turns",
        "adapters",
        "cost",
        "passes",
        "unit",
    )

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.cost = 0
        self.passes = 0
        """Batches in a row that went without the job due first, since another's turn it was."""
        self.adapters: dict[str, int] = {}
        """How many jobs here are read with each adapter."""
        self._turns: dict[ServiceClass, Turns] = {}  # of those classes that have a job here
        self._by_due: list[Entry] = []
        self._by_arrival: list[tuple[float, int]] = []
        self._here: set[int] = set()  # numbers of the jobs that wait; the heaps may hold others still
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._here)

    def __iter__(self) -> Iterator[Job]:
        return (job for turns in self._turns.values() for job in turns)

    def add(self, job: Job) -> None:
        self._put(job.due, job)

    def put_back(self, job: Job) -> None:
        """It was taken out. Where it was in a batch that did not come to its end it goes to the head, before
        whatever is due."""
        self._put(-math.inf if job.attempt > 1 else job.due, job)

    def waits(self, service_class: ServiceClass) -> bool:
        """Whether a job of this class is here."""
        return service_class in self._turns

    @property
    def classes(self) -> Collection[ServiceClass]:
        """Those that have a job here."""
        return self._turns.keys()

    def count(self, service_class: ServiceClass) -> int:
        """How many jobs of this class wait here."""
        return self._turns[service_class].jobs if service_class in self._turns else 0

    def jobs_of(self, principal: str) -> int:
        """How many jobs of this principal wait here."""
        return sum([turns.jobs_of(principal) for turns in self._turns.values()])

    def urgency(self) -> ServiceClass | None:
        """The most urgent class that has a job here."""
        return min(self._turns) if self._turns else None

    def head(self) -> Job | None:
        """The job that is due first, whatever its class and principal."""
        by_due = self._by_due
        while by_due and by_due[0][1] not in self._here:
            heappop(by_due)
        return by_due[0][2] if by_due else None

    def first_but(self, adapters: Collection[str]) -> Job | None:
        """The job due first of those that are read with none of these: a walk through all."""
        mine = [e for e in self._by_due if e[1] in self._here and not {*adapters}.intersection(e[2].adapters)]
        return min(mine)[2] if mine else None

    def pop_head(self) -> Job:
        """Take out the job that is due first."""
        job = self.head()
        assert job is not None, "the head of an empty lane"
        return self._left(self._turns[job.service_class].pop_of(job.principal))

    def next(self) -> Job | None:
        """The first job of the most urgent class, of the principal whose turn it is there."""
        urgency = self.urgency()
        return self._turns[urgency].next() if urgency is not None else None

    def pop_next(self) -> Job:
        """Take out that job."""
        urgency = self.urgency()
        assert urgency is not None, "a job out of an empty lane"
        return self._left(self._turns[urgency].pop_next())

    def went(self, job: Job) -> None:
        """A job that was taken out goes into a batch: its principal has had that much."""
        if (turns := self._turns.get(job.service_class)) is not None:
            turns.charge(job.principal, job.cost)

    def oldest_arrival(self) -> float:
        """When the job that has waited longest came; inf when nothing waits."""
        by_arrival = self._by_arrival
        while by_arrival and by_arrival[0][1] not in self._here:
            heappop(by_arrival)
        return by_arrival[0][0] if by_arrival else math.inf

    def clear(self) -> list[Job]:
        """Take out everything."""
        jobs = list(self)
        self._turns.clear()
        self._by_due.clear()
        self._by_arrival.clear()
        self._here.clear()
        self.adapters.clear()
        self.cost = 0
        return jobs

    def take_out(self, gone: Callable[[Job], bool]) -> list[Job]:
        """Take out these. Who had how much is forgotten."""
        taken = []
        for job in self.clear():
            if gone(job):
                taken.append(job)
            else:
                self.put_back(job)
        return taken

    def _put(self, key: float, job: Job) -> None:
        number = next(self._numbers)
        if not number % SLACK:
            self._tidy()
        entry = (key, number, job)
        turns = self._turns.get(job.service_class)
        if turns is None:
            turns = self._turns[job.service_class] = Turns()
        turns.add(entry)
        heappush(self._by_due, entry)
        heappush(self._by_arrival, (job.arrived, number))
        self._here.add(number)
        self.cost += job.cost
        for adapter in job.adapters:
            self.adapters[adapter] = self.adapters.get(adapter, 0) + 1

    def _left(self, entry: Entry) -> Job:
        _, number, job = entry
        if not self._turns[job.service_class].jobs:
            del self._turns[job.service_class]
        self._here.remove(number)
        self.cost -= job.cost
        for adapter in job.adapters:
            self.adapters[adapter] -= 1
            if not self.adapters[adapter]:
                del self.adapters[adapter]
        return job

    def _tidy(self) -> None:
        most = 2 * len(self._here) + SLACK
        if len(self._by_due) > most:
            self._by_due = [entry for entry in self._by_due if entry[1] in self._here]
            heapify(self._by_due)
        if len(self._by_arrival) > most:
            self._by_arrival = [entry for entry in self._by_arrival if entry[1] in self._here]
            heapify(self._by_arrival)
