"""The open requests: which jobs belong to whom, what came back so far, and when a request is whole."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.actors.messages import Enqueue
from engine.errors import EngineError
from engine.events import RequestDone
from engine.requests import Delta, Generated, Output, Response, Task, Timing, Usage


@dataclass(slots=True)
class Open:
    """One request between its admission and its end."""

    enqueued: Enqueue
    cold: bool
    outputs: dict[int, Output | EngineError] = field(default_factory=dict)
    ended: int = 0
    first_started: float | None = None
    last_finished: float = 0.0
    load_seconds: float = 0.0
    output_tokens: int = 0
    device: str = ""
    batches: dict[int, int] = field(default_factory=dict)

    @property
    def closed(self) -> bool:
        """Nobody waits any more: it was answered, or the asker left."""
        return self.enqueued.reply.closed

    @property
    def over(self) -> bool:
        """No job of it is in the queue or in a runner."""
        return self.ended == len(self.enqueued.jobs)

    def started(self, batch: int, jobs: int, device: str, ready_at: float, now: float) -> None:
        """Some of its jobs went into a batch. `ready_at` is when its unit last became ready."""
        if self.first_started is None:
            self.first_started = now
            if self.cold:
                self.load_seconds = max(0.0, min(now, ready_at) - self._queued_at)
        self.device = device
        self.batches[batch] = jobs

    @property
    def _queued_at(self) -> float:
        return self.enqueued.received + self.enqueued.prepare_seconds

    def take(self, index: int, output: Output | EngineError) -> None:
        """One job is done. On encode, score and generate the first error is the whole request's."""
        self.outputs[index] = output
        if isinstance(output, Generated):
            self.output_tokens += len(output.token_ids)
        if isinstance(output, EngineError) and self.enqueued.request.task is not Task.EXTRACT:
            self.fail(output.at(index))

    def stream(self, text: str, tokens: int) -> None:
        """A piece of text for whoever reads along."""
        if self.enqueued.deltas is not None and not self.closed:
            self.enqueued.deltas.send_nowait(Delta(text, tokens))

    def fail(self, error: EngineError) -> None:
        self.enqueued.reply.fail(error)

    def answer(self, now: float) -> None:
        """All of it is there."""
        enqueued = self.enqueued
        outputs = {**enqueued.failed, **self.outputs}
        usage = sum(enqueued.usages, Usage()) + Usage(output_tokens=self.output_tokens)
        enqueued.reply.resolve(
            Response(
                model=enqueued.model,
                outputs=tuple(outputs[i] for i in range(len(enqueued.request.items))),
                usage=usage,
                timing=self.timing(now),
                cold=self.cold,
                device=self.device,
                degraded_from=enqueued.degraded_from,
            )
        )

    def timing(self, now: float) -> Timing:
        """Where its time went. Jobs of one request overlap: run is from its first batch to its last."""
        enqueued = self.enqueued
        started = self.first_started if self.first_started is not None else now
        return Timing(
            prepare=enqueued.prepare_seconds,
            queue=max(0.0, started - self._queued_at - self.load_seconds),
            load=self.load_seconds,
            run=max(0.0, self.last_finished - started),
            total=now - enqueued.received,
        )

    def done(self, outcome: str, now: float) -> RequestDone:
        enqueued, request, timing = self.enqueued, self.enqueued.request, self.timing(now)
        if outcome == "ok" and enqueued.degraded_from:
            outcome = "degraded"
        return RequestDone(
            request=request.id,
            model=enqueued.model,
            task=request.task,
            service_class=min((j.service_class for j in enqueued.jobs), default=0),
            session=request.session,
            arrived=enqueued.received,
            outcome=outcome,
            items=len(request.items),
            cost=sum(job.cost for job in enqueued.jobs),
            input_tokens=sum(usage.input_tokens for usage in enqueued.usages),
            output_tokens=self.output_tokens,
            prepare_seconds=timing.prepare,
            queue_seconds=timing.queue,
            load_seconds=timing.load,
            run_seconds=timing.run,
            total_seconds=timing.total,
            cold=self.cold,
            device=self.device,
            batches=tuple(self.batches.items()),
        )
