"""What the batcher does on each message: messages in, effects out. Pure: the clock comes in as `now`.

The live batcher, the tests and the planner drive this one object. It owns the queue, knows which slots
are idle, and asks the memory manager for a lease before it forms a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from engine.conversation import (
    Denied,
    Finished,
    Granted,
    Lost,
    Ready,
    Release,
    TooLarge,
    Unavailable,
)
from engine.errors import EngineError, ResourceExhausted, RunnerCrashed
from engine.requests import ServiceClass
from engine.scheduling.admission import Admission, Backlog
from engine.scheduling.batches import Batches, dropped
from engine.scheduling.batching import Room, form
from engine.scheduling.effects import Batch, Done, Dropped, Effect, Failed
from engine.scheduling.filling import Filling
from engine.scheduling.lanes import Job, Lane
from engine.scheduling.loss import lose
from engine.scheduling.misfits import Bound, Misfits
from engine.scheduling.policy import FairShare
from engine.scheduling.rules import SchedulingRules
from engine.scheduling.sequences import Sequences
from engine.scheduling.sizing import Sizing
from engine.scheduling.slots import Slots
from engine.scheduling.standing import Standing, standings
from engine.scheduling.waiting import Waiting
from engine.scheduling.window import Window
from engine.units import UnitFacts

AGAIN_SECONDS = 1.0
"""After so long it makes sense to send again what was lost with a device."""

STRANDED_SECONDS = 30.0
"""And so long when there is no other: a server takes about that to be started again."""


@dataclass(slots=True)
class Dispatch:
    facts: Callable[[str], UnitFacts]
    rules: SchedulingRules
    slots: Mapping[str, str]
    """Every slot and the device it belongs to."""
    kinds: Mapping[str, str]
    """Kind of each device."""
    wanted: Callable[[Job], bool] = lambda job: True
    """Whether anybody still waits for this job; the table of replies knows."""
    lanes: dict[str, Lane] = field(default_factory=dict)
    sequences: dict[str, Sequences] = field(default_factory=dict)
    running: dict[int, Batch] = field(default_factory=dict)
    sizing: Sizing = field(init=False)
    admission: Admission = field(init=False)
    share: FairShare = field(init=False)
    _slots: Slots = field(init=False)
    _window: Window = field(init=False)
    misfits: Misfits = field(init=False)
    _filling: Filling = field(init=False)
    _batches: Batches = field(init=False)
    _waiting: Waiting = field(init=False)

    def __post_init__(self) -> None:
        self.sizing = Sizing(self.rules)
        self.admission = Admission(self.rules)
        self.share = FairShare(self.rules.floors)
        self._slots = Slots(self.slots, self.kinds)
        self._window = Window(self.sizing)
        self.misfits = Misfits(self.facts, self._slots)
        self._filling = Filling(
            self.facts,
            self._slots,
            self.sizing,
            self.share,
            self._window,
            self.lanes,
            self.sequences,
            self.misfits,
        )
        self._batches = Batches(
            self.facts,
            self.sizing,
            self.share,
            self._window,
            self._slots,
            self.admission,
            self.sequences,
            self.running,
        )
        self._waiting = Waiting(
            self.facts, self.share, self._filling, self.lanes, self.sequences, self.misfits
        )

    @property
    def wake_at(self) -> float:
        """When `on_wake` should be called, if nothing comes before."""
        over = self._filling.wake_at
        return min(over, self.misfits.due_at) if self.misfits.apart else over

    def refusal(self, jobs: Sequence[Job], now: float) -> EngineError | None:
        """Why these jobs, all of one unit and one principal, may not join the queue; None when they may."""
        if not jobs:
            return None
        unit = jobs[0].unit
        waiting = self._waiting.backlog(unit, jobs[0].principal)
        backlog = Backlog(self._waiting.jobs, *waiting, lambda: self.predicted_wait(unit))
        return self.admission.refusal(jobs, backlog, now)

    def predicted_wait(self, unit: str) -> float:
        """Seconds until a job that joins the lane now would start, as far as is known."""
        return self._filling.drain_seconds(unit)

    def next_up(self, device: str, now: float) -> list[Standing]:
        """The lanes in the order in which they would be served there, and why. Changes nothing."""
        return standings(self._filling, device, now)

    def on_enqueue(self, jobs: Iterable[Job], now: float) -> list[Effect]:
        """Admitted jobs, those of one request, join their lanes."""
        costs: dict[str, int] = {}
        for job in jobs:
            self._waiting.join(job)
            costs[job.unit] = costs.get(job.unit, 0) + job.cost
            if job.service_class is ServiceClass.INTERACTIVE:
                self.sizing.interactive_seen = now
        for unit, cost in costs.items():
            self._window.arrived(unit, cost, now)
        stranded = self._strand(costs) if self._slots.lost else []
        return [*stranded, *self._waiting.settle(costs), *self._filling.fill(now)]

    def on_idle(self, slot: str, now: float) -> list[Effect]:
        self._slots.free(slot)
        return [*self._filling.fill(now)]

    def on_wake(self, now: float) -> list[Effect]:
        """A window is over, or jobs set apart have waited long enough."""
        late = self.misfits.late(now)
        failed = [self._failed_as_too_large(unit, self.misfits.clear(unit)) for unit in late]
        return [*failed, *self._waiting.settle(late), *self._filling.fill(now)]

    def on_given_up(self, units: Sequence[str], now: float) -> list[Effect]:
        """Nobody waits any more for some jobs of these units. Where a unit is on no device, no batch would
        find that out, perhaps for long: they leave now."""
        effects: list[Effect] = []
        for lane in [lane for unit in units for lane in self._waiting.lanes_of(unit)]:
            if self.facts(lane.unit).adapts or not self._filling.warm.get(lane.unit):
                gone = lane.take_out(lambda job: not self.wanted(job))
                effects += [Dropped(tuple(gone), "abandoned")] if gone else []
        return [*effects, *self._waiting.settle(units), *self._filling.fill(now)]

    def on_ready(self, ready: Ready, now: float) -> list[Effect]:
        self._filling.came(ready.unit, ready.device, ready.load_seconds)
        self._waiting.came(ready.unit)
        unit = self.facts(ready.unit).adapts or ready.unit
        for job in self.misfits.give_back(unit, ready.device):
            self._waiting.join(job)
        told = self._waiting.settle([unit])
        spread = self._filling.spread_adapters(unit, self._waiting.adapters(unit))
        return [*told, *spread, *self._filling.fill(now)]

    def on_left(self, unit: str, device: str, now: float) -> list[Effect]:
        self._filling.left(unit, device)
        self.misfits.forget(unit, device)
        self._waiting.left(unit)
        return [*self._sort_out(unit, now), *self._waiting.settle([unit])]

    def on_denied(self, denied: Denied, now: float) -> list[Effect]:
        """The slot takes other work; the lane waits for `Ready`."""
        self._slots.answered(denied.slot)
        self._slots.free(denied.slot)
        self._filling.left(denied.unit, denied.device)
        return [*self._waiting.settle([denied.unit]), *self._filling.fill(now)]

    def on_too_large(self, message: TooLarge, now: float) -> list[Effect]:
        """Jobs that can never run there are left to other devices, or fail alone; the others go on."""
        need = self._slots.answered(message.slot)
        self._slots.free(message.slot)
        if need is None:
            return []
        self.misfits.learn(Bound(message, need))
        sorted_out = self._sort_out(message.unit, now)
        return [*sorted_out, *self._waiting.settle([message.unit]), *self._filling.fill(now)]

    def on_unavailable(self, message: Unavailable, now: float) -> list[Effect]:
        jobs = self._waiting.clear(message.unit)
        failed: list[Effect] = [Failed(jobs, message.failure)] if jobs else []
        return [*failed, *self._waiting.settle([message.unit])]

    def on_granted(self, granted: Granted, now: float) -> list[Effect]:
        """Form the batch, now that it is known what fits."""
        lease = granted.lease
        need = self._slots.answered(lease.slot)
        if need is None:
            return []  # the device was lost, and its leases with it
        facts, lane = self.facts(lease.unit), self._waiting.lane(lease.unit)
        sequences = self.sequences.get(lease.unit)
        room = Room(
            cost=lease.max_cost,
            soft_cost=self.sizing.soft_costs(facts, lease.device, lane, need.want_cost, now),
            adapters=lease.adapters,
        )
        if sequences is not None:
            joining = facts.max_running - len(sequences)
            room = replace(room, jobs=joining, kv_tokens=granted.kv_tokens - need.kv_floor)
        formed = form(lane, room, now, self.wanted)
        leaving: tuple[str, ...] = ()
        if sequences is not None:
            leaving = sequences.leaving(now, self.wanted)
            sequences.join(lease.device, formed.jobs)
        effects: list[Effect] = [*dropped(formed)]
        if formed.jobs or (sequences is not None and len(sequences)):
            effects.append(self._batches.start(lease, formed.jobs, leaving, sequences, now))
        else:
            effects.append(Release(lease, kv_tokens=0))
            self._slots.free(lease.slot)
        return [*effects, *self._waiting.settle([lease.unit]), *self._filling.fill(now)]

    def on_finished(self, finished: Finished, now: float) -> list[Effect]:
        """A batch is over: its lease goes back, its time is charged and learned from."""
        if finished.lost:
            return self._lose(finished, now)
        batch = self.running.pop(finished.run, None)
        if batch is None:
            return []  # its device was lost, and its jobs went elsewhere
        effects: list[Effect] = [*self._batches.end(finished, batch, now)]
        again = self._once_more(finished, batch)
        outcomes = finished.outcomes
        if again:
            outcomes = tuple([o for o in outcomes if o.job not in again])
        if outcomes:
            effects.append(Done(outcomes))
        told = self._waiting.settle([finished.lease.unit])
        return [*effects, *told, *(self._filling.fill(now) if again else ())]

    def _once_more(self, finished: Finished, batch: Batch) -> set[str]:
        """Jobs for which memory ran out though they were alone have another try, now that more is freed."""
        if not finished.out_of_memory or batch.run.generative:
            return set()
        exhausted = {
            outcome.job
            for outcome in finished.outcomes
            if outcome.failure is not None and outcome.failure.kind == ResourceExhausted.__name__
        }
        jobs = [job for job in batch.jobs if job.id in exhausted]
        spent = self._waiting.put_back(jobs)
        return exhausted - {job.id for job in spent}

    def _lose(self, finished: Finished, now: float) -> list[Effect]:
        """The device is gone for good; what ran there goes back once, to be run elsewhere."""
        device = finished.lease.device
        if device in self._slots.lost:
            return []
        reason = f"{device} failed under a batch of {finished.lease.unit}"
        units, failed = lose(device, reason, finished, self.running, self._filling, self._waiting)
        effects: list[Effect] = [Lost(device, reason)]
        if finished.outcomes:
            effects.append(Done(finished.outcomes))
        if failed:
            crashed = RunnerCrashed(f"{device} was lost while it ran this.").after(AGAIN_SECONDS)
            effects.append(Failed(tuple(failed), crashed.failure()))
        for unit in units:
            effects += self._sort_out(unit, now)
        return [*effects, *self._strand(units), *self._waiting.settle(units), *self._filling.fill(now)]

    def _strand(self, units: Iterable[str]) -> list[Effect]:
        """What waits for units that no device is left for fails at once, to be sent again or elsewhere."""
        effects: list[Effect] = []
        for unit in units:
            if self._slots.usable(self.facts(unit).device_kinds):
                continue
            if jobs := self._waiting.clear(unit):
                gone = ", ".join(self._slots.lost)
                text = f"No device is left that could run {unit}: {gone} failed. Restart the server."
                effects.append(Failed(jobs, RunnerCrashed(text).after(STRANDED_SECONDS).failure()))
        return effects

    def _sort_out(self, unit: str, now: float) -> list[Effect]:
        """Jobs that no device which has the unit can run wait for one that may, or fail alone."""
        warm = self._filling.warm.get(unit, ())
        lane, reads = self._waiting.lane(unit), self._filling.reads
        nowhere, elsewhere = self.misfits.take_out(lane, warm, reads, now)
        failed = [self._failed_as_too_large(unit, nowhere)] if nowhere else []
        spread = [effect for device in sorted(elsewhere) for effect in self._filling.spread(unit, device)]
        return [*failed, *spread]

    def _failed_as_too_large(self, unit: str, jobs: Sequence[Job]) -> Failed:
        return Failed(tuple(jobs), self.misfits.explain(unit).failure())
