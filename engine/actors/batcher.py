"""The batcher: the one place where jobs wait. Idle runners pull batches from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

import anyio

from engine.actors.actor import Actor, Address, Mailbox
from engine.actors.holds import Holds
from engine.actors.messages import BatcherMessage, Drain, Enqueue, Event, Foresee, Let, Submit
from engine.actors.table import Open
from engine.conversation import (
    Denied,
    Finished,
    Granted,
    Idle,
    Left,
    Lost,
    Need,
    Outcome,
    Ready,
    Release,
    Run,
    Spread,
    TooLarge,
    Unavailable,
    Unwanted,
    Wanted,
)
from engine.errors import DeadlineExceeded, EngineError, InputTooLong, QueueFull, StillLoading, Stopped
from engine.estimates import Estimated
from engine.events import BatchDone, JobsDropped
from engine.payloads import Payloads
from engine.scheduling.dispatch import Dispatch
from engine.scheduling.effects import Done, Dropped, Effect, Failed
from engine.scheduling.forecast import outlook
from engine.scheduling.lanes import Job


class Batcher(Actor[BatcherMessage]):
    """Performs what `Dispatch` decides, and holds the table of replies."""

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
        dispatch.wanted = self._wanted
        self._payloads = payloads
        payloads.wanted = self._awaited
        self._memory = memory
        self._runners = runners
        self._router = router
        self._observers = observers
        self._open: dict[str, Open] = {}
        self._open_of: Counter[str] = Counter()
        """Open requests of each unit."""
        self._draining: list[Drain] = []
        self._holds: Holds[str] = Holds(max_hold)
        self._ready_at: dict[str, float] = {}
        self._load_seconds: dict[str, float] = {}
        """What loading took the last time."""
        self._resident: dict[str, set[str]] = {}
        """Units that have come and not left: what a caller calls warm, be there a lease just now or not."""

    def handle(self, message: BatcherMessage) -> None:
        now = anyio.current_time()
        match message:
            case Enqueue():
                self._enqueue(message, now)
            case Drain():
                self._draining.append(message)
                self._drained()
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
                self._ready_at[message.unit] = now
                self._resident.setdefault(message.unit, set()).add(message.device)
                if message.load_seconds:
                    self._load_seconds[message.unit] = message.load_seconds
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

    def _enqueue(self, enqueue: Enqueue, now: float) -> None:
        cold = enqueue.unit not in self._resident
        request = self._open[enqueue.number] = Open(enqueue, cold)
        self._open_of[enqueue.unit] += 1
        self._holds.add(enqueue.number, enqueue.received)
        late = enqueue.request.deadline <= now
        refusal = DeadlineExceeded() if late else self.dispatch.refusal(enqueue.jobs, now)
        if isinstance(refusal, QueueFull) and enqueue.degrade and enqueue.degraded_from is None:
            self._degrade(enqueue, enqueue.degrade)
        elif refusal is not None:
            request.fail(refusal)
            self._end(request, enqueue.jobs, now, self._outcome(request, now))
        elif not enqueue.jobs:
            self._end(request, (), now, "ok")
        else:
            self._perform(self.dispatch.on_enqueue(enqueue.jobs, now), now)

    def _left(self, unit: str, device: str) -> None:
        devices = self._resident.get(unit, set())
        devices.discard(device)
        if not devices:
            self._resident.pop(unit, None)

    def _foresee(self, foresee: Foresee, now: float) -> None:
        unit = foresee.unit
        cold = unit not in self._resident
        load = self._load_seconds.get(unit)
        found = outlook(self.dispatch, unit, foresee.jobs, now, cold=cold, load=load)
        foresee.reply.resolve(Estimated(foresee.costed, found))

    def stop(self) -> None:
        """Whoever still waits is told, and whoever reads a stream comes to its end."""
        for request in self._open.values():
            request.fail(Stopped().after(1.0))

    def _degrade(self, enqueue: Enqueue, model: str) -> None:
        """Another model answers instead. The request goes back to be prepared for that one."""
        for job in enqueue.jobs:
            self._payloads.drop(job.id)
        self._close(enqueue)
        request = replace(enqueue.request, model=model, profile=None)
        self._router.tell(Submit(enqueue.reply, request, enqueue.deltas, degraded_from=enqueue.model))

    def wake_at(self) -> float:
        return min(self._holds.due_at(), self.dispatch.wake_at)

    def wake(self) -> None:
        now = anyio.current_time()
        if self.dispatch.wake_at <= now:
            self._perform(self.dispatch.on_wake(now), now)
        self._expire(now)

    def _expire(self, now: float) -> None:
        """Requests that waited as long as one may, and of which nothing has run yet."""
        for number in self._holds.take_due(now):
            request = self._open.get(number)
            if request is None or request.first_started is not None:
                continue
            warm = request.enqueued.unit in self._resident
            request.fail(QueueFull().after(1.0) if warm else StillLoading().after(1.0))

    def _wanted(self, job: Job) -> bool:
        request = self._open.get(job.request)
        return request is not None and not request.closed

    def _awaited(self, job: str) -> bool:
        """For a runner in the middle of it: a document that nobody waits for is given up."""
        request = self._open.get(_request(job))
        return request is not None and not request.closed

    def _perform(self, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            match effect:
                case Run():
                    self._start(effect, now)
                case Need() | Release() | Wanted() | Unwanted() | Spread() | Lost():
                    self._memory.tell(effect)
                case Done():
                    self._take(effect.outcomes, now)
                case Dropped():
                    self._drop(effect, now)
                case Failed():
                    self._fail(effect.jobs, effect.failure.error(), now)
                case _:
                    assert_never(effect)

    def _start(self, run: Run, now: float) -> None:
        ready_at = self._ready_at.get(run.lease.unit, now)
        batch = self.dispatch.running[run.id]
        for number, jobs in Counter(job.request for job in batch.jobs).items():
            self._open[number].started(run.id, jobs, run.lease.device, ready_at, now)
        self._runners[run.lease.slot].tell(run)

    def _finish(self, finished: Finished, now: float) -> None:
        batch = self.dispatch.running.get(finished.run)
        if batch is None:
            return  # it ran on a device that was lost, and its jobs went elsewhere
        lease = finished.lease
        self._observe(
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
        for progress in finished.progress:
            if request := self._open.get(_request(progress.job)):
                request.stream(progress.text, progress.tokens, progress.chosen)
        self._perform(self.dispatch.on_finished(finished, now), now)

    def _take(self, outcomes: Sequence[Outcome], now: float) -> None:
        """Jobs that came to their end in a batch."""
        for outcome in outcomes:
            request = self._open.get(_request(outcome.job))
            if request is None:
                continue
            request.last_finished = now
            if outcome.failure is not None:
                request.take(_index(outcome.job), outcome.failure.error())
            else:
                assert outcome.output is not None
                request.take(_index(outcome.job), self._payloads.outputs[outcome.output])
            self._ended(request, outcome.job, now)

    def _drop(self, dropped: Dropped, now: float) -> None:
        for unit, jobs in Counter(job.unit for job in dropped.jobs).items():
            self._observe(JobsDropped(unit, dropped.reason, jobs))
        for job in dropped.jobs:
            if request := self._open.get(job.request):
                if dropped.reason == "expired":
                    request.fail(DeadlineExceeded())
                self._ended(request, job.id, now)

    def _fail(self, jobs: Sequence[Job], error: EngineError, now: float) -> None:
        for job in jobs:
            request = self._open.get(job.request)
            if request is None:
                continue
            if isinstance(error, InputTooLong):  # said of this job, not of its whole lane
                request.take(_index(job.id), error)
            else:
                request.fail(error)
            self._ended(request, job.id, now)

    def _ended(self, request: Open, job: str, now: float) -> None:
        self._payloads.drop(job)
        request.ended += 1
        if request.over:
            self._end(request, (), now, self._outcome(request, now))

    def _outcome(self, request: Open, now: float) -> str:
        if not request.closed:
            return "ok"
        error = request.enqueued.reply.error
        if isinstance(error, EngineError):
            return error.code
        return "DEADLINE_EXCEEDED" if now >= request.enqueued.request.deadline else "CANCELLED"

    def _end(self, request: Open, jobs: Sequence[Job], now: float, outcome: str) -> None:
        """The last job of a request has ended, or none was let in: answer, forget it, tell who counts."""
        for job in jobs:
            self._payloads.drop(job.id)
        timing = request.timing(now)
        if outcome == "ok":
            request.answer(timing)
        self._close(request.enqueued)
        self._observe(request.done(outcome, timing))

    def _close(self, enqueue: Enqueue) -> None:
        """Nothing of it is here any more."""
        del self._open[enqueue.number]
        self._holds.drop(enqueue.number)
        self._router.tell(Let(enqueue.held_bytes))
        self._open_of[enqueue.unit] -= 1
        if not self._open_of[enqueue.unit]:
            del self._open_of[enqueue.unit]
            self._drained()

    def _drained(self) -> None:
        """Answer whoever waits for units that have no open request any more."""
        for drain in [d for d in self._draining if not any(unit in self._open_of for unit in d.units)]:
            self._draining.remove(drain)
            drain.reply.resolve(None)

    def _observe(self, event: Event) -> None:
        for observer in self._observers:
            observer.tell(event)


def _request(job: str) -> str:
    return job.partition("/")[0]


def _index(job: str) -> int:
    return int(job.partition("/")[2])
