"""What the batcher does with `Dispatch`'s effects, and the runners with batches, on the twin's clock."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from engine.conversation import (
    Denied,
    Finished,
    Granted,
    Left,
    Lost,
    Need,
    Outcome,
    Progress,
    Ready,
    Release,
    Run,
    Spread,
    TooLarge,
    Unavailable,
    Unwanted,
    Wanted,
)
from engine.errors import DeadlineExceeded, EngineError, QueueFull, StillLoading
from engine.scheduling.curve import RuntimeCurve
from engine.scheduling.dispatch import Dispatch
from engine.scheduling.effects import Done, Dropped, Effect, Failed
from engine.scheduling.lanes import Job
from engine.units import UnitFacts
from replay.twin.clock import Clock, Seat
from replay.twin.company import Company
from replay.twin.going import Going
from replay.twin.memory_manager import MemoryManager
from replay.twin.results import Ran
from replay.twin.server import Server
from replay.twin.sharing import Sharing


class Batcher:
    """Mirrors `engine.actors.batcher` message by message; what is decided is `Dispatch`'s in both."""

    def __init__(
        self,
        server: Server,
        facts: Mapping[str, UnitFacts],
        clock: Clock,
        company: Company,
        sharing: Mapping[str, Sharing],
        memory: MemoryManager,
        seed: int,
        keep: bool,
        ended: Callable[[Going], None],
        again: Callable[[Going], None],
    ) -> None:
        """`ended` is told of every request that has come to its end, `again` of those that another unit is to
        answer."""
        self._server = server
        self._clock = clock
        self._company = company
        self._sharing = sharing
        self._memory = memory
        self._cards = {card.name: card for card in server.cards}
        slots = {f"{card.name}/{n}": card.name for card in server.cards for n in range(card.slots)}
        kinds = {card.name: card.kind for card in server.cards}
        self.dispatch = Dispatch(facts.__getitem__, server.scheduling, slots, kinds, self._wanted)
        self.dispatch.sizing.curves |= _learned(server)
        self.seat: Seat[Effect] = Seat(clock, self)
        self._timings = {
            (unit.name, card.name): unit.timing(card)
            for unit in server.units.values()
            for card in server.cards
        }
        self._luck = {unit: random.Random(f"{seed}/{unit}/runs") for unit in server.units}
        self._open: dict[str, Going] = {}
        self._holds: deque[Going] = deque()
        self._written: Counter[str] = Counter()
        self._ready_at: dict[str, float] = {}
        self._came: dict[str, set[str]] = {}
        """The devices that units have come to and not left."""
        self._acts = self._by_effect()
        self._keep = keep
        self._tell_ended = ended
        self._send_again = again
        self.ran: list[Ran] = []
        self.batches = 0
        self.busy: dict[tuple[str, str], float] = {}
        self.extrapolated: Counter[str] = Counter()
        for slot in slots:
            self.seat.tell(self.dispatch.on_idle, slot)

    # What it is told.

    def enqueue(self, going: Going, jobs: Sequence[Job]) -> None:
        self.seat.tell(self._enqueue, going, jobs)

    def granted(self, granted: Granted) -> None:
        self.seat.tell(self.dispatch.on_granted, granted)

    def ready(self, ready: Ready) -> None:
        self.seat.tell(self._on_ready, ready)

    def left(self, left: Left) -> None:
        self.seat.tell(self._on_left, left)

    def told(self, message: Denied | TooLarge | Unavailable) -> None:
        match message:
            case Denied():
                self.seat.tell(self.dispatch.on_denied, message)
            case TooLarge():
                self.seat.tell(self.dispatch.on_too_large, message)
            case Unavailable():
                self.seat.tell(self.dispatch.on_unavailable, message)

    def _on_ready(self, ready: Ready, now: float) -> list[Effect]:
        self._ready_at[ready.unit] = now
        self._came.setdefault(ready.unit, set()).add(ready.device)
        return self.dispatch.on_ready(ready, now)

    def _on_left(self, left: Left, now: float) -> list[Effect]:
        self._came.get(left.unit, set()).discard(left.device)
        return self.dispatch.on_left(left.unit, left.device, now)

    def _enqueue(self, going: Going, jobs: Sequence[Job], now: float) -> list[Effect]:
        unit = jobs[0].unit
        going.cold = not self._came.get(unit)
        going.queued_at, going.left = now, len(jobs)
        refusal = DeadlineExceeded() if going.deadline <= now else self.dispatch.refusal(jobs, now)
        other = self._server.units[unit].degrade
        if isinstance(refusal, QueueFull) and other and not going.degraded:
            going.degrade(other)
            self._send_again(going)
        elif refusal is not None:
            going.fail(refusal, now)
            self._end(going, now)
        else:
            for job in jobs:
                self._open[job.id] = going
            self._holds.append(going)
            return self.dispatch.on_enqueue(jobs, now)
        return []

    # Time.

    @property
    def wake_at(self) -> float:
        holds = self._holds
        while holds and (holds[0].started or holds[0].ended):
            holds.popleft()
        held = holds[0].received + self._server.max_hold if holds else math.inf
        return min(held, self.dispatch.wake_at)

    def wake(self) -> None:
        now = self._clock.now
        if self.dispatch.wake_at <= now:
            self.perform(self.dispatch.on_wake(now))
        given_up: dict[str, None] = {}
        while self._holds and self._holds[0].received + self._server.max_hold <= now:
            going = self._holds.popleft()
            if not going.started and not going.ended:
                given_up[going.unit] = None
                going.fail(QueueFull() if self._came.get(going.unit) else StillLoading(), now)
        if given_up:
            self.perform(self.dispatch.on_given_up(tuple(given_up), now))

    def _wanted(self, job: Job) -> bool:
        going = self._open.get(job.id)
        return going is not None and not going.closed

    # What it does.

    def _by_effect(self) -> dict[type[Effect], Callable[[Any], None]]:
        custody, memory = self._memory.custody, self._memory
        return {
            Run: self._start,
            Done: self._done,
            Need: partial(memory.seat.tell, custody.on_need),
            Release: partial(memory.seat.tell, custody.on_release),
            Wanted: partial(memory.seat.tell, memory.on_wanted),
            Unwanted: lambda effect: memory.seat.tell(custody.on_unwanted, effect.unit),
            Spread: lambda effect: memory.seat.tell(custody.on_spread, effect.unit, effect.device),
            Lost: lambda effect: memory.seat.tell(custody.on_lost, effect.device, effect.reason),
            Dropped: self._dropped,
            Failed: self._failed,
        }

    def perform(self, effects: Iterable[Effect]) -> None:
        acts = self._acts  # by type, since a `match` over so many costs as much as a decision
        for effect in effects:
            acts[type(effect)](effect)

    def _done(self, done: Done) -> None:
        for outcome in done.outcomes:
            self._ended(outcome.job, outcome.failure.error() if outcome.failure else None)

    def _dropped(self, dropped: Dropped) -> None:
        for job in dropped.jobs:
            self._ended(job.id, DeadlineExceeded() if dropped.reason == "expired" else None)

    def _failed(self, failed: Failed) -> None:
        for job in failed.jobs:
            self._ended(job.id, failed.failure.error())

    def _start(self, run: Run) -> None:
        clock, lease = self._clock, run.lease
        now, unit, device = clock.now, lease.unit, lease.device
        cost = sum([job.cost for job in run.jobs])
        for job in run.jobs:
            self._open[job.id].start(now, self._ready_at.get(unit, now))
        timing, luck = self._timings[unit, device], self._luck[unit]
        card, sharing = self._cards[device], self._sharing[device]
        tokens = 0
        if run.generative:
            # It lasts as long as it is told to, however fast it goes: what changes is what it writes.
            whole = run.seconds * card.speed * sharing.rate
            seconds, tokens = timing.quantum(cost, len(run.running), whole, luck)
        else:
            seconds = timing.batch(cost, luck)
            if not timing.known(cost):
                self.extrapolated[unit] += 1
        number = len(self.ran)
        if self._keep:
            jobs = tuple([job.id for job in run.jobs])
            self.ran.append(Ran(now, 0.0, unit, device, lease.slot, cost, jobs))
        here = self._company.enter(device)
        done = partial(self._finish, run, now, cost, tokens, here, number)
        if card.handover:
            done = partial(clock.later, card.handover, done)
        sharing.batch(seconds / card.speed, done)

    def _finish(self, run: Run, began: float, cost: int, tokens: int, here: int, number: int) -> None:
        lease = run.lease
        alone = self._company.leave(lease.device, here)
        spent = self._clock.now - began - self._cards[lease.device].handover
        if self._keep:
            self.ran[number] = replace(self.ran[number], seconds=spent)
        self.batches += 1
        key = (lease.unit, lease.device)
        self.busy[key] = self.busy.get(key, 0.0) + spent
        peak = (
            self._timings[key].peak_bytes(cost + (len(run.running) if run.generative else 0)) if alone else 0
        )
        progress: tuple[Progress, ...] = ()
        if run.generative:
            outcomes, progress = self._write(run, tokens)
        else:
            outcomes = tuple([Outcome(job.id, job.id) for job in run.jobs])
        finished = Finished(run.id, lease, outcomes, spent, progress, peak_bytes=peak)
        self.seat.tell(self.dispatch.on_finished, finished)
        self.seat.tell(self.dispatch.on_idle, lease.slot)

    def _write(self, run: Run, tokens: int) -> tuple[tuple[Outcome, ...], tuple[Progress, ...]]:
        """Each sequence goes on by so many tokens, or to its end."""
        outcomes: list[Outcome] = []
        progress: list[Progress] = []
        for job in run.running:
            if job in run.leaving:
                continue
            going = self._open[job]
            self._written[job] += tokens
            progress.append(Progress(job, "", tokens))
            if self._written[job] >= going.answer_tokens:
                outcomes.append(Outcome(job, job))
        return tuple(outcomes), tuple(progress)

    def _ended(self, job: str, error: EngineError | None) -> None:
        going = self._open.pop(job)
        self._written.pop(job, None)
        now = self._clock.now
        if error is not None:
            going.fail(error, now)
        elif not going.closed:
            going.last_finished = now
        going.left -= 1
        if not going.left:
            self._end(going, now)

    def _end(self, going: Going, now: float) -> None:
        going.end(now)
        self._tell_ended(going)


def _learned(server: Server) -> dict[tuple[str, str], RuntimeCurve]:
    curves = {}
    for key, points in server.curves.items():
        curves[key] = RuntimeCurve()
        curves[key].learn(points)
    return curves
