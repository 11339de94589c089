"""The sequences that a generative unit has under way: who runs where, and what they hold. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from engine.requests import ServiceClass
from engine.scheduling.batching import Formed
from engine.scheduling.lanes import Job


@dataclass(slots=True)
class Sequences:
    """The running set of one unit. It lives on one device; only `join` may choose which."""

    unit: str
    device: str | None = None
    _jobs: dict[str, Job] = field(default_factory=dict)
    _leaving: set[str] = field(default_factory=set)
    _heard: set[str] = field(default_factory=set)  # those of which somebody may have read the beginning

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    @property
    def kv_tokens(self) -> int:
        """Tokens of prompt and answer that the set may come to hold, those that leave included."""
        return sum(job.kv_tokens for job in self._jobs.values())

    @property
    def adapters(self) -> tuple[str, ...]:
        """Those that the set is read with."""
        return tuple(sorted({each for job in self._jobs.values() for each in job.adapters}))

    @property
    def urgency(self) -> ServiceClass | None:
        return min((job.service_class for job in self._jobs.values()), default=None)

    def join(self, device: str, jobs: Iterable[Job]) -> None:
        self.device = device
        self._jobs |= {job.id: job for job in jobs}

    def leaving(self, now: float, wanted: Callable[[Job], bool]) -> tuple[str, ...]:
        """Those that nobody waits for or whose deadline has passed; they leave with the next quantum."""
        gone = [j.id for j in self._jobs.values() if j.deadline <= now or not wanted(j)]
        self._leaving |= set(gone)
        return tuple(gone)

    def left(self, now: float) -> Formed:
        """The quantum that they left with is over: forget them, and say why they left."""
        gone = [self._jobs.pop(id) for id in sorted(self._leaving) if id in self._jobs]
        self._leaving.clear()
        self._heard.difference_update(job.id for job in gone)
        late = [job for job in gone if job.deadline <= now]
        return Formed(expired=late, abandoned=[job for job in gone if job not in late])

    def spoke(self, ids: Iterable[str]) -> None:
        """Some text of these was given out."""
        self._heard.update(ids)

    def done(self, ids: Iterable[str]) -> None:
        for id in ids:
            self._jobs.pop(id, None)
            self._leaving.discard(id)
            self._heard.discard(id)

    def clear(self) -> tuple[list[Job], list[Job]]:
        """Take out everything, since the device is lost: those that nothing was heard of, and the others."""
        jobs, heard = list(self._jobs.values()), set(self._heard)
        self._jobs.clear()
        self._leaving.clear()
        self._heard.clear()
        return [job for job in jobs if job.id not in heard], [job for job in jobs if job.id in heard]
