"""What happened: told to the recorder and to telemetry, acted on by nobody.

Structs, since each request makes one, and none is ever part of a cycle.
"""

from __future__ import annotations

import math

import msgspec

from engine.requests import Request


class RequestDone(msgspec.Struct, frozen=True, gc=False):
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
    principal: str = ""  # who asked
    unit: str = ""
    costs: tuple[int, ...] = ()  # of each job
    kv_tokens: int = 0  # that its sequences could have come to hold
    deadline_seconds: float = math.inf  # from its arrival
    degraded_from: str | None = None
    bytes_in: int = 0  # of what the client sent, text at four bytes a character
    profile: str | None = None
    truncated: int = 0  # inputs that were cut to the model's length

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
            principal=request.principal,
            deadline_seconds=request.deadline - received,
            profile=request.profile,
        )


class AnswerEncoded(msgspec.Struct, frozen=True, gc=False):
    """edge -> telemetry: writing an answer of this model took so long."""

    model: str
    seconds: float


class BatchDone(msgspec.Struct, frozen=True, gc=False):
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
    running: int = 0  # sequences that were under way when it began
    tokens: int = 0  # that it wrote
    peak_bytes: int = 0  # held beside the weights; 0 where nobody could tell


class JobsDropped(msgspec.Struct, frozen=True, gc=False):
    """batcher -> telemetry: jobs left the queue without running."""

    unit: str
    reason: str  # expired | abandoned
    jobs: int


class ResidencyChanged(msgspec.Struct, frozen=True, gc=False):
    """memory manager -> recorder and telemetry: a unit was loaded, evicted, unloaded or failed."""

    unit: str
    device: str
    event: str  # loaded | evicted | unloaded | failed | lost
    at: float
    seconds: float = 0.0
    weights_bytes: int = 0
    reason: str = ""
    thrash: bool = False
    """This load follows several evictions of the unit in a short time."""
    from_host: bool = False
    """The weights came from host memory, not from disk."""


class Acted(msgspec.Struct, frozen=True, gc=False):
    """audit -> recorder: what an operator asked for has ended."""

    who: str
    action: str
    target: str
    at: float
    outcome: str
    reason: str = ""
    after: str = ""


class ContentSeen(msgspec.Struct, frozen=True):
    """engine -> recorder: a request for a model whose content is being recorded."""

    at: float
    request: Request
