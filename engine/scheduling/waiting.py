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
    _adapters: dict[str, dict[str, None]] = field(default_factory=dict)
    """By unit, its adapters that have work. What is to be read with one that is nowhere waits in a lane of
    that one's name."""

    def lane(self, unit: str) -> Lane:
        """The unit's lane, or an empty one that nobody keeps."""
        return self.lanes.get(unit) or Lane(unit)

    def join(self, job: Job) -> None:
        self._lane_for(job).add(job)

    def came(self, unit: str) -> None:
        """What waited for it, where it is an adapter, waits with the other jobs, or for another one."""
        apart = [
            each for each in self._needing(unit) if unit in each.adapters and self.facts(each.unit).adapts
        ]
        self.give_back([job for lane in apart for job in lane.take_out(lambda job: unit in job.adapters)])

    def give_back(self, jobs: Iterable[Job]) -> None:
        """They were taken out, and wait again."""
        for job in jobs:
            self._lane_for(job).put_back(job)

    def left(self, unit: str) -> None:
        """What no device can read without it, where it is an adapter, waits for it."""
        lane = self.lane(self.facts(unit).adapts or unit)
        if unit in lane.adapters:
            self.give_back(lane.take_out(lambda job: unit in job.adapters and not self._readable(job)))

    def _readable(self, job: Job) -> bool:
        """Whether a device has all the adapters that the job is read with."""
        first = job.adapters[0]
        return any(self.filling.reads(job, device) for device in self.filling.warm.get(first, ()))

    def adapters(self, unit: str) -> tuple[str, ...]:
        """Those of the unit that have work."""
        return tuple(self._adapters.get(unit, ()))

    def lanes_of(self, unit: str) -> list[Lane]:
        """Its own, and those of its adapters that are nowhere: those where something waits."""
        if not self._adapters:
            return [self.lanes[unit]] if unit in self.lanes else []
        lanes = [self.lanes.get(each) for each in (unit, *self._adapters.get(unit, ()))]
        return [lane for lane in lanes if lane is not None]

    def _needing(self, unit: str) -> list[Lane]:
        """Where jobs wait that need it: of an adapter, perhaps in the lane of another one besides."""
        of = self.facts(unit).adapts if self._adapters else None
        if of is None:
            return self.lanes_of(unit)
        return [lane for lane in self.lanes_of(of) if unit in lane.adapters]

    def backlog(self, unit: str, principal: str) -> tuple[int, int, Callable[[], int]]:
        """Jobs that wait for it, with any adapter, their cost, and how many are the principal's."""
        lanes = self.lanes_of(unit)
        jobs, cost = sum([len(lane) for lane in lanes]), sum([lane.cost for lane in lanes])
        return jobs, cost, lambda: sum(lane.jobs_of(principal) for lane in lanes)

    def put_back(self, jobs: Iterable[Job]) -> list[Job]:
        """To the heads of their lanes, each once; those that have had their second try are given back."""
        spent = []
        for job in jobs:
            if job.attempt >= ATTEMPTS:
                spent.append(job)
                continue
            again = replace(job, attempt=job.attempt + 1)
            self._lane_for(again).put_back(again)
        return spent

    def clear(self, unit: str) -> tuple[Job, ...]:
        """Take out all that waits for the unit, with any adapter, or for the adapter; sequences stay."""
        lanes, whole = self._needing(unit), self.facts(unit).adapts is None
        jobs = [job for lane in lanes for job in lane.take_out(lambda job: whole or unit in job.adapters)]
        return (*jobs, *self.misfits.clear(unit))

    @property
    def units(self) -> tuple[str, ...]:
        """Those that have work."""
        return tuple(self._told)

    def settle(self, units: Iterable[str]) -> list[Wanted | Unwanted]:
        """The lanes of these have changed, or what they have had: keep the books, and tell the memory
        manager which have come to have work, or run out of it."""
        told: list[Wanted | Unwanted] = []
        for unit in self._with_adapters(units) if self._adapters else units:
            lane, sequences = self.lanes.get(unit), self.sequences.get(unit)
            if lane is None and sequences is None and unit not in self._told and not self._adapters:
                continue
            jobs, urgency = (len(lane), lane.urgency()) if lane is not None else (0, None)
            self.jobs += jobs - self._counted.get(unit, 0)
            self._counted[unit] = jobs
            if sequences is not None and (going := sequences.urgency) is not None:
                urgency = going if urgency is None else min(going, urgency)
            apart = self._adapters and self.facts(unit).adapts is not None
            devices = () if apart else self.filling.warm.get(unit)
            if urgency is None or not devices:
                self.filling.order.drop(unit)
            else:
                self.filling.order.put(unit, urgency, self.share.virtual(unit, urgency), devices)
            if self._adapters:
                urgency = self._beside(unit, urgency)
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
        lanes = self._needing(unit)
        due = min([head.due for lane in lanes if (head := lane.head()) is not None], default=math.inf)
        there = self.filling.warm.get(unit, ())
        wanted = Wanted(unit, ServiceClass.STANDARD if urgency is None else urgency, due, there)
        if self._told.get(unit) == wanted:
            return None
        self._told[unit] = wanted
        return wanted

    def _forget(self, unit: str) -> None:
        self._counted.pop(unit, None)
        self.lanes.pop(unit, None)
        self.sequences.pop(unit, None)
        self.filling.relax(unit)
        of = self.facts(unit).adapts if self._adapters else None
        if of is not None and of in self._adapters:
            self._adapters[of].pop(unit, None)
            if not self._adapters[of]:
                del self._adapters[of]

    def _with_adapters(self, units: Iterable[str]) -> list[str]:
        """These units, their adapters and their bases: they are wanted for each other."""
        found: dict[str, None] = {}
        for unit in units:
            of = self.facts(unit).adapts or unit
            found |= dict.fromkeys((of, *self._adapters.get(of, ()), unit))
        return list(found)

    def _beside(self, unit: str, urgency: ServiceClass | None) -> ServiceClass | None:
        """Also of what waits in other lanes: a unit is wanted for those of its adapters, and an adapter for
        what is to be read, or is being written, with it."""
        found = [urgency, *[self.lane(each).urgency() for each in self._adapters.get(unit, ())]]
        if (of := self.facts(unit).adapts) is not None:
            found += [lane.urgency() for lane in self._needing(unit)]
            others = [*self.sequences.get(of, ()), *self.misfits.of(of)]
            found += [job.service_class for job in others if unit in job.adapters]
        return min([each for each in found if each is not None], default=None)

    def _lane_for(self, job: Job) -> Lane:
        if job.adapters:
            self._adapters.setdefault(job.unit, {}).update(dict.fromkeys(job.adapters))
            if not self._readable(job):
                missing = [adapter for adapter in job.adapters if adapter not in self.filling.warm]
                waits_for = (missing or job.adapters)[0]
                return self.lanes.setdefault(waits_for, Lane(waits_for))
        lane = self.lanes.get(job.unit)
        if lane is None:
            lane = self.lanes[job.unit] = Lane(job.unit)
            if self.facts(job.unit).generative:
                self.sequences.setdefault(job.unit, Sequences(job.unit))
        if not lane.waits(job.service_class):
            self.share.wake(job.unit, job.service_class)
        return lane
