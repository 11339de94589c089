"""What an idle slot asks for: which lane, and how large a batch of it. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from engine.conversation import Need, Spread
from engine.requests import ServiceClass
from engine.scheduling.lanes import Job, Lane
from engine.scheduling.misfits import Misfits
from engine.scheduling.order import Order
from engine.scheduling.policy import Candidate, FairShare
from engine.scheduling.sequences import Sequences
from engine.scheduling.sizing import Sizing
from engine.scheduling.slots import Slots
from engine.scheduling.window import Window
from engine.units import UnitFacts

LOOK = 8
"""So many lanes of a class are looked at, those that have had least of their share: as each batch moves
its lane back, the others come up within that many batches."""

CLASSES = tuple(ServiceClass)  # an enum makes them anew each time it is walked through

LOADS_WORTH = 2.0
"""A backlog is spread when it would last as long as so many loads."""


@dataclass(slots=True)
class Filling:
    facts: Callable[[str], UnitFacts]
    slots: Slots
    sizing: Sizing
    share: FairShare
    window: Window
    lanes: Mapping[str, Lane]
    sequences: Mapping[str, Sequences]
    misfits: Misfits
    order: Order = field(default_factory=Order)
    warm: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Devices on which leases for a unit can be had."""
    load_seconds: dict[str, float] = field(default_factory=dict)
    wake_at: float = math.inf
    """When a slot that waits for company should go without."""
    _spread: set[tuple[str, str]] = field(default_factory=set)

    def fill(self, now: float) -> list[Need | Spread]:
        """Ask for a lease for every idle slot that has something to do."""
        self.wake_at = math.inf
        if not self.slots.idle or not self.order:
            return []
        asked: list[Need | Spread] = []
        nothing: set[str] = set()
        for slot in tuple(self.slots.idle):
            device = self.slots.devices[slot]
            if device in nothing:
                continue
            candidates = self.candidates(device, now)
            if not candidates:
                asked += self._spread_to(device)
                nothing.add(device)
            elif (soonest := min([c.held_until for c in candidates])) > now:
                for candidate in candidates:
                    self.window.waits(candidate.unit)
                self.wake_at = min(self.wake_at, soonest)
                nothing.add(device)
            elif chosen := self.share.choose(candidates, now):
                self.window.over(chosen.unit)
                need = self._need(chosen.unit, device, slot)
                self.slots.ask(need)
                asked.append(need)
        return asked

    def candidates(self, device: str, now: float) -> list[Candidate]:
        """Lanes that could run there now, of each class those that have had least."""
        found: list[Candidate] = []
        for service_class in CLASSES:
            looked, free = 0, False
            for _, unit in self.order.lanes(device, service_class):
                if candidate := self.candidate(unit, device, now):
                    found.append(candidate)
                    looked, free = looked + 1, free or candidate.held_until <= now
                    if looked >= LOOK and free:
                        break
        return found

    def candidate(self, unit: str, device: str, now: float) -> Candidate | None:
        """The lane as the policy sees it; None when it has nothing for this device."""
        facts, lane, slots = self.facts(unit), self.lanes.get(unit), self.slots
        if slots.taken(unit) >= facts.max_slots:
            return None
        absent = self.absent(lane, device) if lane is not None and lane.adapters else ()
        waiting = (lane.cost if lane is not None else 0) - slots.asked_cost(unit)
        if absent and lane is not None and lane.first_but(absent) is None:
            waiting = 0
        sequences = self.sequences.get(unit)
        going = sequences is not None and len(sequences) > 0
        if sequences is not None and going:
            if sequences.device != device:
                return None
        elif waiting <= 0:
            return None
        head = lane.head() if lane is not None else None
        if head is not None and not going:
            others = self.warm[unit]
            if head.adapters:
                others = tuple([other for other in others if self.reads(head, other)])
            if self.misfits.left_to_another(head, device, others):
                return None
        urgency = _urgency(lane, sequences)
        held_until = -math.inf
        if lane is not None and not facts.generative:
            places = min(facts.max_slots, sum([slots.counts[d] for d in self.warm[unit]]))
            held_until = self.window.until(facts, lane, device, places, now)
        return Candidate(
            unit,
            service_class=urgency,
            due=head.due if head is not None else math.inf,
            seconds=self.sizing.next_run(facts, device, urgency, waiting, now),
            held_until=held_until,
        )

    def reads(self, job: Job, device: str) -> bool:
        """Whether the adapters that it is read with are there."""
        return all(device in self.warm.get(adapter, ()) for adapter in job.adapters)

    def absent(self, lane: Lane, device: str) -> list[str]:
        """Adapters of jobs there that are on another device, and not on this one."""
        return [adapter for adapter in lane.adapters if device not in self.warm.get(adapter, ())]

    def drain_seconds(self, unit: str) -> float:
        """How long what waits for `unit` would last at the learned speed, as far as it is known, over the
        slots that may take it."""
        lane = self.lanes.get(unit)
        if not lane:
            return 0.0
        facts = self.facts(unit)
        batch = min(lane.cost, self.sizing.usual_cost(facts)) or 1
        devices = self.warm.get(unit) or self.slots.usable(facts.device_kinds)
        known = {d: s for d in devices if (s := self.sizing.predicted(unit, d, batch))}
        if not known:
            return 0.0
        slowest = max(known.values())
        slots = sum(self.slots.counts[device] for device in devices)
        # A device that it never ran on is taken to be as slow as the slowest.
        speed = sum(self.slots.counts[device] / known.get(device, slowest) for device in devices)
        return lane.cost / batch / (speed * min(1.0, facts.max_slots / slots))

    def came(self, unit: str, device: str, load_seconds: float) -> None:
        """Leases for the unit can be had there."""
        if device in self.slots.lost:
            return
        self.warm[unit] = tuple(sorted({*self.warm.get(unit, ()), device}))
        self._spread.discard((unit, device))
        if load_seconds:
            self.load_seconds[unit] = load_seconds

    def left(self, unit: str, device: str) -> None:
        """They can not, for now."""
        there = tuple(d for d in self.warm.get(unit, ()) if d != device)
        if there:
            self.warm[unit] = there
        else:
            self.warm.pop(unit, None)
        self._spread.discard((unit, device))

    def spread(self, unit: str, device: str) -> list[Need | Spread]:
        """`device` could serve this unit's backlog: said once, until it came there or has no more work."""
        if (unit, device) in self._spread:
            return []
        self._spread.add((unit, device))
        return [Spread(unit, device)]

    def spread_adapters(self, unit: str, adapters: Iterable[str]) -> list[Need | Spread]:
        """What is on one device of the unit could serve jobs on its others."""
        devices = self.warm.get(unit, ())
        there = [(adapter, self.warm[adapter]) for adapter in adapters if adapter in self.warm]
        missing = [(adapter, d) for adapter, having in there for d in devices if d not in having]
        return [told for adapter, device in missing for told in self.spread(adapter, device)]

    def relax(self, unit: str) -> None:
        """The unit's backlog is gone."""
        if self._spread:
            self._spread = {key for key in self._spread if key[0] != unit}

    def _spread_to(self, device: str) -> list[Need | Spread]:
        """Backlogs of its neighbours that are worth a load."""
        kind, spread = self.slots.kinds[device], []
        for other in self.slots.counts:
            if other == device or self.slots.kinds[other] != kind:
                continue
            for service_class in CLASSES:
                for _, unit in self.order.lanes(other, service_class)[:LOOK]:
                    if device not in self.warm[unit] and self._pays_a_load(unit, service_class):
                        spread += self.spread(unit, device)
        return spread

    def _pays_a_load(self, unit: str, service_class: ServiceClass) -> bool:
        facts = self.facts(unit)
        if facts.generative or self.slots.taken(unit) >= facts.max_slots:
            return False
        target = self.sizing.target(facts, service_class)
        least = max(LOADS_WORTH * self.load_seconds.get(unit, 0.0), target / 2)
        return self.drain_seconds(unit) > least

    def _need(self, unit: str, device: str, slot: str) -> Need:
        facts, lane = self.facts(unit), self.lanes.get(unit) or Lane(unit)
        sequences = self.sequences.get(unit)
        absent = self.absent(lane, device) if lane.adapters else ()
        urgency, head = _urgency(lane, sequences), lane.first_but(absent) if absent else lane.head()
        needed = head.adapters if head is not None else ()
        adapters = tuple(sorted(lane.adapters.keys() - absent)) if lane.adapters else ()
        limit = self.sizing.usual_cost(facts)
        sharing = self.slots.idle_on(device)
        want = min(limit, max(math.ceil(lane.cost / sharing), limit // 8))
        first = head.cost if head else 0
        if sequences is None:
            return Need(
                unit,
                device,
                slot,
                min_cost=first,
                want_cost=max(want, first),
                urgency=urgency,
                needed=needed,
                adapters=adapters,
            )
        floor = sequences.kv_tokens
        joining = facts.max_running > len(sequences) and head is not None
        waiting = sum(itertools.islice((j.kv_tokens for j in lane), facts.max_running))
        least = floor if len(sequences) or head is None else floor + head.kv_tokens
        return Need(
            unit,
            device,
            slot,
            min_cost=0 if len(sequences) else first,
            want_cost=max(want, first),
            kv_floor=floor,
            kv_min=least,
            kv_want=max(least, floor + waiting) if joining else floor,
            urgency=urgency,
            needed=needed,
            adapters=tuple(dict.fromkeys([*sequences.adapters, *adapters])),
        )


def _urgency(lane: Lane | None, sequences: Sequences | None) -> ServiceClass:
    """Of a unit that has work."""
    waits = lane.urgency() if lane is not None else None
    goes_on = sequences.urgency if sequences is not None else None
    if waits is None or goes_on is None:
        urgency = goes_on if waits is None else waits
        assert urgency is not None, "a unit without work"
        return urgency
    return min(waits, goes_on)
