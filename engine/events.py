"""What happened: told to the recorder and to telemetry, acted on by nobody."""

from __future__ import annotations

from dataclasses import dataclass

from engine.requests import Request


@dataclass(frozen=True, slots=True)
class RequestDone:
    """batcher or router -> recorder and telemetry: a request has ended, however it ended."""

    request: str
    model: str
    task: str
    service_class: int
    session: str | None
    arrived: float
    outcome: str  # ok, degraded, or an error's code
    items: int
    cost: int
    input_tokens: int
    output_tokens: int
    prepare_seconds: float
    queue_seconds: float
    load_seconds: float
    run_seconds: float
    total_seconds: float
    cold: bool
    device: str = ""
    batches: tuple[tuple[int, int], ...] = ()  # (batch, jobs of this request in it)

    @classmethod
    def refused(
        cls, request: Request, model: str, outcome: str, received: float, seconds: float
    ) -> RequestDone:
        """A request that ended before any of it was queued."""
        return cls(
            request=request.id,
            model=model,
            task=request.task,
            service_class=int(request.service_class or 0),
            session=request.session,
            arrived=received,
            outcome=outcome,
            items=len(request.items),
            cost=0,
            input_tokens=0,
            output_tokens=0,
            prepare_seconds=seconds,
            queue_seconds=0.0,
            load_seconds=0.0,
            run_seconds=0.0,
            total_seconds=seconds,
            cold=False,
        )


@dataclass(frozen=True, slots=True)
class AnswerEncoded:
    """edge -> telemetry: writing an answer of this model took so long."""

    model: str
    seconds: float


@dataclass(frozen=True, slots=True)
class BatchDone:
    """batcher -> recorder and telemetry: a batch ran."""

    batch: int
    unit: str
    device: str
    slot: str
    jobs: int
    cost: int
    started: float
    seconds: float
    predicted: float


@dataclass(frozen=True, slots=True)
class JobsDropped:
    """batcher -> telemetry: jobs left the queue without running."""

    unit: str
    reason: str  # expired | abandoned
    jobs: int


@dataclass(frozen=True, slots=True)
class ResidencyChanged:
    """memory manager -> recorder and telemetry: a unit was loaded, evicted, unloaded or failed."""

    unit: str
    device: str
    event: str  # loaded | evicted | unloaded | failed
    at: float
    seconds: float = 0.0
    weights_bytes: int = 0
    reason: str = ""
