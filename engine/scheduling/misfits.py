"""Jobs too large for some device: which ones, and where else they may go. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine.conversation import Need, TooLarge
from engine.errors import EngineError, InputTooLong, NoRoom
from engine.scheduling.lanes import Job, Lane
from engine.scheduling.slots import Slots
from engine.units import UnitFacts

APART_SECONDS = 10.0
"""So long a job that only another device could run waits for its unit to come there."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What a device said that it can never run."""

    told: TooLarge
    asked: Need

    def allows(self, job: Job) -> bool:
        """Each limit is without the other: what is as large in both as what was asked for fits no better.
        It was said of jobs that are read with the same adapters."""
        if job.adapters != self.asked.needed:
            return True
        if job.cost > self.told.max_cost or job.kv_tokens > self.told.max_kv_tokens:
            return False
        return job.cost < self.asked.min_cost or job.kv_tokens < self.asked.kv_min - self.asked.kv_floor


@dataclass(slots=True)
class Apart:
    """Jobs too large for every device that has their unit, while another may come to have it."""

    until: float
    jobs: list[Job] = field(default_factory=list)


@dataclass(slots=True)
class Misfits:
    facts: Callable[[str], UnitFacts]
    slots: Slots
    apart: dict[str, Apart] = field(default_factory=dict)
    _bounds: dict[tuple[str, str], Bound] = field(default_factory=dict)

    def fits(self, job: Job, device: str) -> bool:
        """Whether it can run there, as far as is known."""
        bound = self._bounds.get((job.unit, device)) if self._bounds else None
        return bound is None or bound.allows(job)

    def left_to_another(self, job: Job, device: str, warm: Sequence[str]) -> bool:
        """Whether it is too large for `device`, and one of the `warm` ones will take it. If none does, the
        device is asked again: there may be more room than there was."""
        if not self._bounds or self.fits(job, device):
            return False
        return any(self.fits(job, other) for other in warm)

    def learn(self, bound: Bound) -> None:
        self._bounds[bound.told.unit, bound.told.device] = bound

    def forget(self, unit: str, device: str) -> None:
        """It left; when it comes back there may be more room."""
        self._bounds.pop((unit, device), None)

    def take_out(
        self, lane: Lane, warm: Sequence[str], reads: Callable[[Job, str], bool], now: float
    ) -> tuple[list[Job], set[str]]:
        """Take out of the lane what none of the `warm` devices, which have the adapters that it `reads`
        with, can run.

        Answers with the jobs that fit nowhere, and the devices which would fit the others: those are
        set apart until the unit comes there.
        """
        unit = lane.unit
        if not any((unit, device) in self._bounds for device in warm):
            return [], set()
        usable = self.slots.usable(self.facts(unit).device_kinds)
        nowhere: list[Job] = []
        elsewhere: set[str] = set()
        for job in lane.clear():
            roomy = [device for device in usable if self.fits(job, device)]
            if not roomy:
                nowhere.append(job)
            elif any(device in warm and reads(job, device) for device in roomy):
                lane.add(job)
            else:
                self.apart.setdefault(unit, Apart(now + APART_SECONDS)).jobs.append(job)
                elsewhere.add(roomy[0])
        return nowhere, elsewhere

    def give_back(self, unit: str, device: str) -> list[Job]:
        """The unit has come to `device`: those set apart may fit there."""
        if unit not in self.apart or (unit, device) in self._bounds:
            return []
        return self.apart.pop(unit).jobs

    def of(self, unit: str) -> list[Job]:
        """Those of the unit that are set apart."""
        return self.apart[unit].jobs if unit in self.apart else []

    def clear(self, unit: str) -> list[Job]:
        kept = self.apart.pop(unit, None)
        return kept.jobs if kept else []

    def late(self, now: float) -> list[str]:
        """Units whose jobs have been set apart for long enough."""
        return [unit for unit, kept in self.apart.items() if kept.until <= now]

    def explain(self, unit: str) -> EngineError:
        """To whom a job of the unit is too large for: where the limit is, and what to do."""
        told = max(
            (bound.told for (of, _), bound in self._bounds.items() if of == unit),
            key=lambda told: (told.max_cost, told.max_kv_tokens),
            default=None,
        )
        if told is None:
            text = "The input needs more memory than any device has for one batch. Send a shorter one."
            return InputTooLong(text)
        if told.max_cost <= 0 or told.max_kv_tokens <= 0:
            return NoRoom(
                f"{told.device} has no memory left for any batch of {unit} beside its weights and what is "
                "pinned there. Unpin something there, or give the server more memory."
            )
        if self.facts(unit).generative:
            return InputTooLong(
                f"{told.device} has memory for a prompt and answer of {told.max_kv_tokens} tokens at most. "
                "Send a shorter prompt, lower max_new_tokens, or give the server more memory."
            )
        return InputTooLong(
            f"The input needs more memory than {told.device} can ever free for one batch, at most a cost of "
            f"{told.max_cost}. Send a shorter one, or give the server more memory."
        )

    @property
    def due_at(self) -> float:
        return min([kept.until for kept in self.apart.values()]) if self.apart else math.inf
