"""The table of replies: every open request from its admission to its end, and who is told then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from engine.actors.actor import Address
from engine.actors.holds import Holds
from engine.actors.messages import Drain, Enqueue, Event, Let, Submit
from engine.actors.open import Open
from engine.conversation import Outcome, Progress
from engine.errors import DeadlineExceeded, EngineError, InputTooLong, QueueFull, StillLoading, Stopped
from engine.events import JobsDropped
from engine.payloads import Payloads
from engine.scheduling.effects import Batch, Dropped
from engine.scheduling.lanes import Job


class Table:
    """A part of the batcher's. Each request in it is answered or failed, forgotten and counted once."""

    def __init__(
        self,
        max_hold: float,
        payloads: Payloads,
        router: Address[Let | Submit],
        observers: Sequence[Address[Event]],
    ) -> None:
        self._payloads = payloads
        payloads.wanted = self.awaited
        self._router = router
        self._observers = observers
        self._open: dict[str, Open] = {}
        self._open_of: Counter[str] = Counter()
        """Open requests of each unit."""
        self._draining: list[Drain] = []
        self._holds: Holds[str] = Holds(max_hold)
        self._freed_bytes = 0

    def add(self, enqueue: Enqueue, cold: bool) -> Open:
        request = self._open[enqueue.number] = Open(enqueue, cold, len(enqueue.jobs))
        self._open_of[enqueue.unit] += 1
        self._holds.add(enqueue.number, enqueue.received)
        return request

    def wanted(self, job: Job) -> bool:
        """Whether anybody still waits for it."""
        request = self._open.get(job.request)
        return request is not None and not request.closed

    def awaited(self, job: str) -> bool:
        """For a runner in the middle of it: a document that nobody waits for is given up."""
        request = self._open.get(job.partition("/")[0])
        return request is not None and not request.closed

    def start(self, batch: Batch, ready_at: Mapping[str, float], now: float) -> None:
        """A batch begins. `ready_at` is when each unit last became ready."""
        run = batch.run
        for number, jobs in Counter([job.request for job in batch.jobs]).items():
            self._open[number].started(run.id, jobs, run.lease.device, ready_at, now)

    def stream(self, progress: Iterable[Progress]) -> None:
        """Pieces of text for those who read along."""
        for piece in progress:
            if request := self._open.get(piece.job.partition("/")[0]):
                request.stream(piece.text, piece.tokens, piece.chosen)

    def take(self, outcomes: Sequence[Outcome], now: float) -> None:
        """Jobs that came to their end in a batch."""
        for outcome in outcomes:
            number, _, index = outcome.job.partition("/")
            request = self._open.get(number)
            if request is None:
                continue
            request.last_finished = now
            if outcome.failure is not None:
                request.take(int(index), outcome.failure.error())
            else:
                assert outcome.output is not None
                request.take(int(index), self._payloads.outputs[outcome.output])
            self._ended(request, outcome.job, now)

    def drop(self, dropped: Dropped, now: float) -> None:
        """Jobs that left the queue without running."""
        for unit, jobs in Counter(job.unit for job in dropped.jobs).items():
            self.observe(JobsDropped(unit, dropped.reason, jobs))
        for job in dropped.jobs:
            if request := self._open.get(job.request):
                if dropped.reason == "expired":
                    request.fail(DeadlineExceeded())
                self._ended(request, job.id, now)

    def fail(self, jobs: Sequence[Job], error: EngineError, now: float) -> None:
        """Jobs that nothing can run."""
        for job in jobs:
            request = self._open.get(job.request)
            if request is None:
                continue
            if isinstance(error, InputTooLong):  # said of this job, not of its whole lane
                request.take(int(job.id.partition("/")[2]), error)
            else:
                request.fail(error)
            self._ended(request, job.id, now)

    def refuse(self, request: Open, error: EngineError, now: float) -> None:
        """None of its jobs is let in."""
        for job in request.enqueued.jobs:
            self._payloads.drop(job.id)
        request.fail(error)
        self.end(request, now)

    def degrade(self, enqueue: Enqueue, model: str) -> None:
        """Another model answers instead. The request goes back to be prepared for that one."""
        for job in enqueue.jobs:
            self._payloads.drop(job.id)
        self._close(enqueue)
        self.let_go()
        request = replace(enqueue.request, model=model, profile=None)
        self._router.tell(Submit(enqueue.reply, request, enqueue.deltas, degraded_from=enqueue.model))

    def end(self, request: Open, now: float) -> None:
        """None of its jobs is under way any more: answer, forget it, tell who counts."""
        outcome, timing = self._outcome(request, now), request.timing(now)
        if outcome == "ok":
            request.answer(timing)
        self._close(request.enqueued)
        self.observe(request.done(outcome, timing))

    def expire(self, warm: Collection[str], now: float) -> Sequence[str]:
        """Requests that waited as long as one may, and of which nothing has run yet, fail. Their units."""
        units: dict[str, None] = {}
        for number in self._holds.take_due(now):
            request = self._open.get(number)
            if request is None or request.first_started is not None:
                continue
            units[request.enqueued.unit] = None
            there = request.enqueued.warm(warm)
            request.fail(QueueFull().after(1.0) if there else StillLoading().after(1.0))
        return tuple(units)

    def due_at(self) -> float:
        """When `expire` should be called."""
        return self._holds.due_at()

    def drain(self, drain: Drain) -> None:
        """Answered when no request for its units is open any more."""
        self._draining.append(drain)
        self._drained()

    def stop(self) -> None:
        """Whoever still waits is told, and whoever reads a stream comes to its end."""
        for request in self._open.values():
            request.fail(Stopped().after(1.0))

    def observe(self, event: Event) -> None:
        for observer in self._observers:
            observer.tell(event)

    def let_go(self) -> None:
        """The router is told what those held that have ended since it was told the last time."""
        if self._freed_bytes:
            self._router.tell(Let(self._freed_bytes))
            self._freed_bytes = 0

    def _ended(self, request: Open, job: str, now: float) -> None:
        self._payloads.drop(job)
        request.under_way -= 1
        if not request.under_way:
            self.end(request, now)

    def _outcome(self, request: Open, now: float) -> str:
        if not request.closed:
            return "ok"
        error = request.enqueued.reply.error
        if isinstance(error, EngineError):
            return error.code
        return "DEADLINE_EXCEEDED" if now >= request.enqueued.request.deadline else "CANCELLED"

    def _close(self, enqueue: Enqueue) -> None:
        """Nothing of it is here any more."""
        del self._open[enqueue.number]
        self._holds.drop(enqueue.number)
        self._freed_bytes += enqueue.held_bytes
        self._open_of[enqueue.unit] -= 1
        if not self._open_of[enqueue.unit]:
            del self._open_of[enqueue.unit]
            self._drained()

    def _drained(self) -> None:
        for drain in [d for d in self._draining if not any(unit in self._open_of for unit in d.units)]:
            self._draining.remove(drain)
            drain.reply.resolve(None)
