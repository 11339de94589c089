"""All that waits or is under way as a sequence, and who has been told of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from engine.conversation import Unwanted, Wanted
from engine.requests import ServiceClass
from engine.scheduling.filling import Filling
from engine.scheduling.lanes import Job, Lane
from engine.scheduling.misfits import Misfits
from engine.scheduling.policy import FairShare
from engine.scheduling.sequences import Sequences
from engine.units import UnitFacts

ATTEMPTS = 2
"""Batches that one job may be in: what a job brought down twice it will bring down again."""


@dataclass(slots=True)
class Waiting:
    facts: Callable[[str], UnitFacts]
    share: FairShare
    filling: Filling
    lanes: dict[str, Lane]
    sequences: dict[str, Sequences]
    misfits: Misfits
    jobs: int = 0
    """In all lanes, as of the last `settle`."""
    _told: dict[str, Wanted] = field(default_factory=dict)
    """What the memory manager knows of the units that have work."""
    _counted: dict[str, int] = field(default_factory=dict)

    def lane(self, unit: str) -> Lane:
        """The unit's lane, or an empty one that nobody keeps."""
        return self.lanes.get(unit) or Lane(unit)

    def join(self, job: Job) -> None:
        self._lane_for(job).add(job)

    def put_back(self, jobs: Iterable[Job]) -> list[Job]:
        """To the heads of their lanes, each once; those that have had their second try are given back."""
        spent = []
        for job in jobs:
            if job.attempt >= ATTEMPTS:
                spent.append(job)
                continue
            again = replace(job, attempt=job.attempt + 1)
            self._lane_for(again).put_first(again)
        return spent

    def clear(self, unit: str) -> tuple[Job, ...]:
        """Take out all that waits for the unit; its sequences stay."""
        lane = self.lanes.get(unit)
        return (*(lane.clear() if lane else ()), *self.misfits.clear(unit))

    @property
    def units(self) -> tuple[str, ...]:
        """Those that have work."""
        return tuple(self._told)

    def settle(self, units: Iterable[str]) -> list[Wanted | Unwanted]:
        """The lanes of these have changed, or what they have had: keep the books, and tell the memory
        manager which have come to have work, or run out of it."""
        told: list[Wanted | Unwanted] = []
        for unit in units:
            lane, sequences = self.lanes.get(unit), self.sequences.get(unit)
            if lane is None and sequences is None and unit not in self._told:
                continue
            jobs, urgency = (len(lane), lane.urgency()) if lane is not None else (0, None)
            self.jobs += jobs - self._counted.get(unit, 0)
            self._counted[unit] = jobs
            if sequences is not None and (going := sequences.urgency) is not None:
                urgency = going if urgency is None else min(going, urgency)
            devices = self.filling.warm.get(unit)
            if urgency is None or not devices:
                self.filling.order.drop(unit)
            else:
                self.filling.order.put(unit, urgency, self.share.virtual(unit, urgency), devices)
            if urgency is not None or unit in self.misfits.apart:
                if wanted := self._news(unit, urgency):
                    told.append(wanted)
                continue
            self._forget(unit)
            if self._told.pop(unit, None):
                told.append(Unwanted(unit))
        return told

    def _news(self, unit: str, urgency: ServiceClass | None) -> Wanted | None:
        """That it has come to have work; and while it is nowhere, how urgent that is whenever it changes."""
        if unit in self._told and unit in self.filling.warm:
            self._told[unit] = Wanted(unit)  # how urgent it is then, is told when it has left
            return None
        head = self.lane(unit).head()
        due = head.due if head is not None else math.inf
        wanted = Wanted(unit, ServiceClass.STANDARD if urgency is None else urgency, due)
        if self._told.get(unit) == wanted:
            return None
        self._told[unit] = wanted
        return wanted

    def _forget(self, unit: str) -> None:
        self._counted.pop(unit, None)
        self.lanes.pop(unit, None)
        self.sequences.pop(unit, None)
        self.filling.relax(unit)

    def _lane_for(self, job: Job) -> Lane:
        lane = self.lanes.get(job.unit)
        if lane is None:
            lane = self.lanes[job.unit] = Lane(job.unit)
            if self.facts(job.unit).generative:
                self.sequences.setdefault(job.unit, Sequences(job.unit))
        if not lane.waits(job.service_class):
            self.share.wake(job.unit, job.service_class)
        return lane
