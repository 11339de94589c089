"""What the batcher does on each message: messages in, effects out. Pure: the clock comes in as `now`.

The live batcher, the tests and the planner drive this one object. It owns the queue, knows which slots
are idle, and asks the memory manager for a lease before it forms a batch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.conversation import (
    Denied,
    Finished,
    Granted,
    JobRef,
    Lease,
    Need,
    Ready,
    Release,
    Run,
    TooLarge,
    Unavailable,
    Unwanted,
    Wanted,
)
from engine.errors import EngineError, InputTooLong
from engine.requests import ServiceClass
from engine.scheduling.admission import Admission
from engine.scheduling.batching import Formed, Room, form
from engine.scheduling.effects import Batch, Dropped, Effect, Failed
from engine.scheduling.lanes import Job, Lane
from engine.scheduling.policy import Candidate, FairShare
from engine.scheduling.rules import SchedulingRules
from engine.scheduling.sequences import Sequences
from engine.scheduling.sizing import Sizing
from engine.units import UnitFacts


@dataclass(slots=True)
class Dispatch:
    facts: Callable[[str], UnitFacts]
    rules: SchedulingRules
    slots: Mapping[str, str]
    """Every slot and the device it belongs to."""
    wanted: Callable[[Job], bool] = lambda job: True
    """Whether anybody still waits for this job; the table of replies knows."""
    lanes: dict[str, Lane] = field(default_factory=dict)
    sequences: dict[str, Sequences] = field(default_factory=dict)
    running: dict[int, Batch] = field(default_factory=dict)
    sizing: Sizing = field(init=False)
    admission: Admission = field(init=False)
    share: FairShare = field(init=False)
    _idle: dict[str, None] = field(default_factory=dict)  # in order: the longest idle first
    _asked: dict[str, Need] = field(default_factory=dict)
    _warm: set[tuple[str, str]] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)  # units the memory manager knows to be wanted
    _runs: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.sizing = Sizing(self.rules)
        self.admission = Admission(self.rules.max_waiting_jobs, self.rules.max_model_jobs)
        self.share = FairShare(self.rules.floors)

    def refusal(self, jobs: Sequence[Job], now: float) -> EngineError | None:
        """Why these jobs, all of one unit, may not join the queue; None when they may."""
        lane = self.lanes.get(jobs[0].unit) if jobs else None
        return self.admission.refusal(
            jobs,
            waiting=sum(map(len, self.lanes.values())),
            lane_jobs=len(lane) if lane else 0,
            lane_cost=lane.cost if lane else 0,
            predicted_wait=self.predicted_wait(jobs[0].unit, now) if jobs else 0.0,
            now=now,
        )

    def predicted_wait(self, unit: str, now: float) -> float:
        """Seconds until a job that joins the lane now would start, as far as is known: what waits in
        the lane at the learned speed, over the slots that may take it."""
        lane = self.lanes.get(unit)
        if not lane:
            return 0.0
        facts = self.facts(unit)
        batch = min(lane.cost, self.sizing.usual_cost(facts)) or 1
        known = [self.sizing.predicted(unit, device, batch) for device in dict.fromkeys(self.slots.values())]
        seconds = min((k for k in known if k), default=0.0)
        return lane.cost / batch * seconds / min(len(self.slots), facts.max_slots)

    def on_enqueue(self, jobs: Iterable[Job], now: float) -> list[Effect]:
        """Admitted jobs join their lanes."""
        units: dict[str, None] = {}
        for job in jobs:
            lane = self.lanes.setdefault(job.unit, Lane(job.unit))
            if not lane.waits(job.service_class):
                self.share.wake(job.unit, job.service_class)
            lane.add(job)
            units[job.unit] = None
            if job.service_class is ServiceClass.INTERACTIVE:
                self.sizing.interactive_seen = now
        return [*self._tell(units), *self._fill(now)]

    def on_idle(self, slot: str, now: float) -> list[Effect]:
        self._idle.setdefault(slot)
        return self._fill(now)

    def on_ready(self, ready: Ready, now: float) -> list[Effect]:
        self._warm.add((ready.unit, ready.device))
        return self._fill(now)

    def on_left(self, unit: str, device: str, now: float) -> list[Effect]:
        self._warm.discard((unit, device))
        return []

    def on_denied(self, denied: Denied, now: float) -> list[Effect]:
        """The slot takes other work; the lane waits for `Ready`."""
        self._asked.pop(denied.slot, None)
        self._warm.discard((denied.unit, denied.device))
        self._idle.setdefault(denied.slot)
        return self._fill(now)

    def on_too_large(self, message: TooLarge, now: float) -> list[Effect]:
        """Jobs that can never run there fail alone; the others go on."""
        need = self._asked.pop(message.slot)
        self._idle.setdefault(message.slot)
        lane = self.lanes.get(message.unit) or Lane(message.unit)
        waiting = lane.clear()
        # Each limit is without the other: what is as large in both as what was asked for fits no better.
        kv_tokens = need.kv_min - need.kv_floor
        fits = [
            job
            for job in waiting
            if job.cost <= message.max_cost
            and job.kv_tokens <= message.max_kv_tokens
            and (job.cost < need.min_cost or job.kv_tokens < kv_tokens)
        ]
        for job in fits:
            lane.add(job)
        lost = tuple(job for job in waiting if job not in fits)
        failure = InputTooLong(_too_large(message, self.facts(message.unit).generative)).failure()
        failed: list[Effect] = [Failed(lost, failure)] if lost else []
        return [*failed, *self._tell([message.unit]), *self._fill(now)]

    def on_unavailable(self, message: Unavailable, now: float) -> list[Effect]:
        lane = self.lanes.get(message.unit)
        jobs = lane.clear() if lane else []
        failed: list[Effect] = [Failed(tuple(jobs), message.failure)] if jobs else []
        return [*failed, *self._tell([message.unit])]

    def on_granted(self, granted: Granted, now: float) -> list[Effect]:
        """Form the batch, now that it is known what fits."""
        lease = granted.lease
        need = self._asked.pop(lease.slot)
        facts = self.facts(lease.unit)
        lane = self.lanes.get(lease.unit) or Lane(lease.unit)
        sequences = self._sequences(facts)
        room = Room(
            cost=lease.max_cost,
            soft_cost=self.sizing.soft_cost(facts, lease.device, lane.urgency(), need.want_cost, now),
            jobs=facts.max_running - len(sequences) if sequences is not None else 1 << 62,
            kv_tokens=granted.kv_tokens - need.kv_floor if sequences is not None else 1 << 62,
        )
        formed = form(lane, room, now, self.wanted)
        leaving: tuple[str, ...] = ()
        if sequences is not None:
            leaving = sequences.leaving(now, self.wanted)
            sequences.join(lease.device, formed.jobs)
        effects = _dropped(formed)
        if formed.jobs or (sequences is not None and len(sequences)):
            effects.append(self._start(lease, formed.jobs, leaving, sequences, now))
        else:
            effects.append(Release(lease, kv_tokens=0))
            self._idle.setdefault(lease.slot)
        return [*effects, *self._tell([lease.unit]), *self._fill(now)]

    def on_finished(self, finished: Finished, now: float) -> list[Effect]:
        """A batch is over: its lease goes back, its time is charged and learned from."""
        batch = self.running.pop(finished.run)
        lease, facts = finished.lease, self.facts(finished.lease.unit)
        cost = max(1, batch.cost)
        self.share.charge(
            lease.unit, batch.service_class, finished.spent - batch.predicted, facts.weight, now
        )
        if not facts.generative and not finished.out_of_memory:
            self.sizing.observe(lease.unit, lease.device, cost, finished.spent)
        self.admission.finished(lease.unit, cost, now)
        effects: list[Effect] = []
        kv_tokens = 0
        if (sequences := self._sequences(facts)) is not None:
            sequences.done(outcome.job for outcome in finished.outcomes)
            effects += _dropped(sequences.left(now))
            kv_tokens = sequences.kv_tokens
        effects.append(Release(lease, kv_tokens, finished.spent, finished.out_of_memory))
        return [*effects, *self._tell([lease.unit])]

    def _start(
        self,
        lease: Lease,
        jobs: Sequence[Job],
        leaving: tuple[str, ...],
        sequences: Sequences | None,
        now: float,
    ) -> Run:
        cost = sum(job.cost for job in jobs)
        classes = [job.service_class for job in jobs]
        if sequences is not None and sequences.urgency is not None:
            classes.append(sequences.urgency)
        if sequences is not None:
            predicted = seconds = self.sizing.quantum(min(classes), now)
        else:
            predicted, seconds = self.sizing.predicted(lease.unit, lease.device, cost), 0.0
        run = Run(
            id=next(self._runs),
            lease=lease,
            jobs=tuple(JobRef(job.id, job.cost, job.id) for job in jobs),
            running=tuple(job.id for job in sequences) if sequences is not None else (),
            leaving=leaving,
            seconds=seconds,
            generative=sequences is not None,
        )
        self.running[run.id] = Batch(run, tuple(jobs), cost, min(classes), now, predicted)
        weight = self.facts(lease.unit).weight
        self.share.charge(lease.unit, min(classes), predicted, weight, now)
        return run

    def _tell(self, units: Iterable[str]) -> list[Effect]:
        """Tell the memory manager which units have come to have work, or run out of it."""
        effects: list[Effect] = []
        for unit in units:
            busy = bool(len(self.lanes.get(unit, ())) or len(self.sequences.get(unit, ())))
            if busy and unit not in self._told:
                self._told.add(unit)
                effects.append(Wanted(unit))
            elif not busy and unit in self._told:
                self._told.remove(unit)
                self.lanes.pop(unit, None)
                effects.append(Unwanted(unit))
        return effects

    def _fill(self, now: float) -> list[Effect]:
        """Ask for a lease for every idle slot that has something to do."""
        effects: list[Effect] = []
        for slot in tuple(self._idle):
            device = self.slots[slot]
            candidates = [c for unit in self._told if (c := self._candidate(unit, device, now))]
            chosen = self.share.choose(candidates, now)
            if chosen is None:
                continue
            del self._idle[slot]
            need = self._asked[slot] = self._need(chosen.unit, device, slot)
            effects.append(need)
        return effects

    def _candidate(self, unit: str, device: str, now: float) -> Candidate | None:
        if (unit, device) not in self._warm:
            return None
        facts, lane = self.facts(unit), self.lanes.get(unit)
        asked = [need for need in self._asked.values() if need.unit == unit]
        in_use = sum(batch.run.lease.unit == unit for batch in self.running.values())
        if len(asked) + in_use >= facts.max_slots:
            return None
        waiting = (lane.cost if lane else 0) - sum(need.want_cost for need in asked)
        sequences = self._sequences(facts)
        if sequences is not None and len(sequences):
            if sequences.device != device:
                return None
        elif waiting <= 0:
            return None
        queues = [lane.urgency() if lane else None, sequences.urgency if sequences else None]
        urgency = [u for u in queues if u is not None]
        head = lane.head() if lane else None
        batch = min(max(1, waiting), self.sizing.usual_cost(facts))
        return Candidate(
            unit,
            service_class=min(urgency),
            due=head.due if head else math.inf,
            seconds=self.sizing.predicted(unit, device, batch),
        )

    def _need(self, unit: str, device: str, slot: str) -> Need:
        facts, lane = self.facts(unit), self.lanes.get(unit) or Lane(unit)
        head = lane.head()
        limit = self.sizing.usual_cost(facts)
        sharing = 1 + sum(self.slots[s] == device for s in self._idle)
        want = min(limit, max(math.ceil(lane.cost / sharing), limit // 8))
        first = head.cost if head else 0
        sequences = self._sequences(facts)
        if sequences is None:
            return Need(unit, device, slot, min_cost=first, want_cost=max(want, first))
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
        )

    def _sequences(self, facts: UnitFacts) -> Sequences | None:
        """The unit's running set; None when it does not generate."""
        if not facts.generative:
            return None
        return self.sequences.setdefault(facts.unit, Sequences(facts.unit))


def _too_large(message: TooLarge, generative: bool) -> str:
    if generative:
        return (
            f"{message.device} has memory for a prompt and answer of {message.max_kv_tokens} tokens at most. "
            "Send a shorter prompt, lower max_new_tokens, or give the server more memory."
        )
    return (
        f"The input needs more memory than {message.device} can ever free for one batch, at most a cost of "
        f"{message.max_cost}. Send a shorter one, or give the server more memory."
    )


def _dropped(formed: Formed) -> list[Effect]:
    effects: list[Effect] = []
    if formed.expired:
        effects.append(Dropped(tuple(formed.expired), "expired"))
    if formed.abandoned:
        effects.append(Dropped(tuple(formed.abandoned), "abandoned"))
    return effects
