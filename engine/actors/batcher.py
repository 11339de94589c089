"""The batcher: the one place where jobs wait. Idle runners pull batches from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from engine.actors.actor import Actor, Address, Mailbox
from engine.actors.messages import BatcherMessage, Drain, Enqueue, Event, Foresee, Let, Submit
from engine.actors.table import Table
from engine.conversation import (
    Denied,
    Finished,
    Granted,
    Idle,
    Left,
    Lost,
    Need,
    Ready,
    Release,
    Run,
    Spread,
    TooLarge,
    Unavailable,
    Unwanted,
    Wanted,
)
from engine.errors import DeadlineExceeded, QueueFull
from engine.estimates import Estimated
from engine.events import BatchDone
from engine.payloads import Payloads
from engine.scheduling.dispatch import Dispatch
from engine.scheduling.effects import Done, Dropped, Effect, Failed
from engine.scheduling.forecast import outlook
from engine.scheduling.lanes import read_with


class Batcher(Actor[BatcherMessage]):
    """Performs what `Dispatch` decides, and has the table of replies."""

    def __init__(
        self,
        mailbox: Mailbox[BatcherMessage],
        *,
        dispatch: Dispatch,
        max_hold: float,
        payloads: Payloads,
        memory: Address[Wanted | Unwanted | Need | Release | Spread | Lost],
        runners: Mapping[str, Address[Run]],
        router: Address[Let | Submit],
        observers: Sequence[Address[Event]],
    ) -> None:
        super().__init__(mailbox)
        self.dispatch = dispatch
        self._table = Table(max_hold, payloads, router, observers)
        dispatch.wanted = self._table.wanted
        self._memory = memory
        self._runners = runners
        self._ready_at: dict[str, float] = {}
        self._load_seconds: dict[str, float] = {}
        """What loading took the last time."""
        self._resident: dict[str, set[str]] = {}
        """Units that have come and not left: what a caller calls warm, be there a lease just now or not."""

    def handle(self, message: BatcherMessage) -> None:
        now = self.now
        match message:
            case Enqueue():
                self._enqueue(message, now)
            case Drain():
                self._table.drain(message)
            case Foresee():
                self._foresee(message, now)
            case Idle():
                self._perform(self.dispatch.on_idle(message.slot, now), now)
            case Granted():
                self._perform(self.dispatch.on_granted(message, now), now)
            case Denied():
                self._perform(self.dispatch.on_denied(message, now), now)
            case TooLarge():
                self._perform(self.dispatch.on_too_large(message, now), now)
            case Ready():
                self._came(message, now)
                self._perform(self.dispatch.on_ready(message, now), now)
            case Left():
                self._left(message.unit, message.device)
                self._perform(self.dispatch.on_left(message.unit, message.device, now), now)
            case Unavailable():
                self._perform(self.dispatch.on_unavailable(message, now), now)
            case Finished():
                self._finish(message, now)
            case _:
                assert_never(message)
        self._table.let_go()

    def _enqueue(self, enqueue: Enqueue, now: float) -> None:
        request = self._table.add(enqueue, cold=not enqueue.warm(self._resident))
        late = enqueue.request.deadline <= now
        refusal = DeadlineExceeded() if late else self.dispatch.refusal(enqueue.jobs, now)
        if isinstance(refusal, QueueFull) and enqueue.degrade and enqueue.degraded_from is None:
            self._table.degrade(enqueue, enqueue.degrade)
        elif refusal is not None:
            self._table.refuse(request, refusal, now)
        elif not enqueue.jobs:
            self._table.end(request, now)
        else:
            self._perform(self.dispatch.on_enqueue(enqueue.jobs, now), now)

    def _came(self, ready: Ready, now: float) -> None:
        self._ready_at[ready.unit] = now
        self._resident.setdefault(ready.unit, set()).add(ready.device)
        if ready.load_seconds:
            self._load_seconds[ready.unit] = ready.load_seconds

    def _left(self, unit: str, device: str) -> None:
        devices = self._resident.get(unit, set())
        devices.discard(device)
        if not devices:
            self._resident.pop(unit, None)

    def _foresee(self, foresee: Foresee, now: float) -> None:
        needed = [foresee.unit, *sorted(read_with(foresee.jobs))]
        absent = tuple(unit for unit in needed if unit not in self._resident)
        known = [seconds for unit in absent if (seconds := self._load_seconds.get(unit)) is not None]
        load = sum(known, 0.0) if len(known) == len(absent) else None
        found = outlook(self.dispatch, foresee.unit, foresee.jobs, now, cold=bool(absent), load=load)
        foresee.reply.resolve(Estimated(foresee.costed, found, absent))

    def stop(self) -> None:
        self._table.stop()

    def wake_at(self) -> float:
        return min(self._table.due_at(), self.dispatch.wake_at)

    def wake(self) -> None:
        now = self.now
        if self.dispatch.wake_at <= now:
            self._perform(self.dispatch.on_wake(now), now)
        if given_up := self._table.expire(self._resident, now):
            self._perform(self.dispatch.on_given_up(given_up, now), now)
        self._table.let_go()

    def _perform(self, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            match effect:
                case Run():
                    self._start(effect, now)
                case Need() | Release() | Wanted() | Unwanted() | Spread() | Lost():
                    self._memory.tell(effect)
                case Done():
                    self._table.take(effect.outcomes, now)
                case Dropped():
                    self._table.drop(effect, now)
                case Failed():
                    self._table.fail(effect.jobs, effect.failure.error(), now)
                case _:
                    assert_never(effect)

    def _start(self, run: Run, now: float) -> None:
        self._table.start(self.dispatch.running[run.id], self._ready_at, now)
        self._runners[run.lease.slot].tell(run)

    def _finish(self, finished: Finished, now: float) -> None:
        batch = self.dispatch.running.get(finished.run)
        if batch is None:
            return  # it ran on a device that was lost, and its jobs went elsewhere
        lease = finished.lease
        self._table.observe(
            BatchDone(
                batch=finished.run,
                unit=lease.unit,
                device=lease.device,
                slot=lease.slot,
                jobs=len(batch.jobs),
                cost=batch.cost,
                started=batch.started,
                seconds=finished.spent,
                predicted=batch.predicted,
                running=len(batch.run.running),
                tokens=sum([progress.tokens for progress in finished.progress]),
                peak_bytes=finished.peak_bytes,
            )
        )
        self._table.stream(finished.progress)
        self._perform(self.dispatch.on_finished(finished, now), now)
