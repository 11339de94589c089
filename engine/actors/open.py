"""One open request: which of its jobs are done, what came back so far, and when it is whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.actors.messages import Enqueue
from engine.chosen import Chosen
from engine.errors import EngineError
from engine.events import RequestDone
from engine.requests import Delta, Generated, Output, Response, Task, Timing, Usage


@dataclass(slots=True)
class Open:
    """One request between its admission and its end."""

    enqueued: Enqueue
    cold: bool
    under_way: int
    """Jobs of it in the queue or in a runner."""
    outputs: dict[int, Output | EngineError] = field(default_factory=dict)
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

    def started(self, batch: int, jobs: int, device: str, ready_at: Mapping[str, float], now: float) -> None:
        """Some of its jobs went into a batch. `ready_at` is when each unit last became ready."""
        if self.first_started is None:
            self.first_started = now
            if self.cold:
                came = max([ready_at.get(unit, now) for unit in self.enqueued.units])
                self.load_seconds = max(0.0, min(now, came) - self._queued_at)
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
        elif isinstance(output, EngineError) and self.enqueued.request.task is not Task.EXTRACT:
            self.fail(output.at(index))

    def stream(self, text: str, tokens: int, chosen: tuple[Chosen, ...]) -> None:
        """A piece of text for whoever reads along."""
        if self.enqueued.request.task is Task.EXTRACT:
            self.output_tokens += tokens  # its output does not say how many it was written with
        if self.enqueued.deltas is not None and not self.closed:
            self.enqueued.deltas.send_nowait(Delta(text, tokens, chosen=chosen))

    def fail(self, error: EngineError) -> None:
        self.enqueued.reply.fail(error)

    def answer(self, timing: Timing) -> None:
        """All of it is there."""
        enqueued = self.enqueued
        outputs = {**enqueued.failed, **self.outputs} if enqueued.failed else self.outputs
        enqueued.reply.resolve(
            Response(
                model=enqueued.model,
                outputs=tuple([outputs[i] for i in range(len(enqueued.request.items))]),
                usage=self._usage(),
                timing=timing,
                cold=self.cold,
                device=self.device,
                degraded_from=enqueued.degraded_from,
            )
        )

    def _usage(self) -> Usage:
        usages = self.enqueued.usages
        if len(usages) == 1 and not self.output_tokens:
            return usages[0]
        return sum(usages, Usage()) + Usage(output_tokens=self.output_tokens)

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

    def done(self, outcome: str, timing: Timing) -> RequestDone:
        enqueued, request, jobs = self.enqueued, self.enqueued.request, self.enqueued.jobs
        if outcome == "ok" and enqueued.degraded_from:
            outcome = "degraded"
        costs, usage = tuple([job.cost for job in jobs]), self._usage()
        return RequestDone(
            request=request.id,
            model=enqueued.model,
            task=request.task,
            service_class=jobs[0].service_class if jobs else 0,
            session=request.session,
            arrived=enqueued.received,
            outcome=outcome,
            items=len(request.items),
            cost=sum(costs),
            input_tokens=usage.input_tokens,
            output_tokens=self.output_tokens,
            prepare_seconds=timing.prepare,
            queue_seconds=timing.queue,
            load_seconds=timing.load,
            run_seconds=timing.run,
            total_seconds=timing.total,
            cold=self.cold,
            device=self.device,
            batches=tuple(self.batches.items()),
            principal=request.principal,
            unit=enqueued.unit,
            costs=costs,
            kv_tokens=sum([job.kv_tokens for job in jobs]),
            deadline_seconds=request.deadline - enqueued.received,
            degraded_from=enqueued.degraded_from,
            bytes_in=enqueued.held_bytes,
            profile=request.profile,
            truncated=usage.truncated,
        )
