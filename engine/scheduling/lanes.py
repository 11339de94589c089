"""What waits: one lane per unit, jobs in it ordered by class and due time. Pure."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from engine.requests import ServiceClass


@dataclass(frozen=True, slots=True)
class Job:
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


class Lane:
    """The waiting jobs of one unit: a heap by due time for each class."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.cost = 0
        self._heaps: dict[ServiceClass, list[tuple[float, int, Job]]] = {c: [] for c in ServiceClass}
        self._order = itertools.count()

    def __len__(self) -> int:
        return sum(map(len, self._heaps.values()))

    def __iter__(self) -> Iterator[Job]:
        return (job for heap in self._heaps.values() for _, _, job in heap)

    def add(self, job: Job) -> None:
        heapq.heappush(self._heaps[job.service_class], (job.due, next(self._order), job))
        self.cost += job.cost

    def waits(self, service_class: ServiceClass) -> bool:
        """Whether a job of this class is here."""
        return bool(self._heaps[service_class])

    def urgency(self) -> ServiceClass | None:
        """The most urgent class that has a job here."""
        return next((c for c, heap in self._heaps.items() if heap), None)

    def head(self) -> Job | None:
        """The job that is due first, whatever its class: it goes with the next batch."""
        heads = [heap[0] for heap in self._heaps.values() if heap]
        return min(heads)[2] if heads else None

    def pop_head(self) -> Job:
        """Take out the job that is due first."""
        heap = min((heap for heap in self._heaps.values() if heap), key=lambda heap: heap[0])
        return self._pop(heap)

    def pop_next(self) -> Job:
        """Take out the first job of the most urgent class."""
        return self._pop(next(heap for heap in self._heaps.values() if heap))

    def _pop(self, heap: list[tuple[float, int, Job]]) -> Job:
        job = heapq.heappop(heap)[2]
        self.cost -= job.cost
        return job

    def oldest_arrival(self) -> float:
        """When the job that has waited longest came; inf when nothing waits."""
        return min((job.arrived for job in self), default=math.inf)

    def clear(self) -> list[Job]:
        """Take out everything."""
        jobs = list(self)
        for heap in self._heaps.values():
            heap.clear()
        self.cost = 0
        return jobs
