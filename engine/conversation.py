"""What the actors say to each other as plain data: ids, numbers and names, nothing else.

The pure cores take these in and give them out; a slot may be a thread, a child process or another
machine, since all that goes to a runner and comes back survives a msgpack round trip. Payloads travel
beside the messages, by reference. The messages that carry a reply are in `engine/actors/messages.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from engine.errors import Failure
from engine.memory.footprint import Footprint
from engine.requests import Request


class Lease(msgspec.Struct, frozen=True):
    """The right to run one batch of `unit` on `device`, up to `max_cost`, with memory set aside for it."""

    id: int
    unit: str
    device: str
    slot: str
    max_cost: int
    kv_bytes: int = 0


class JobRef(msgspec.Struct, frozen=True):
    """A job as a runner sees it. `payload` names its prepared input."""

    id: str
    cost: int
    payload: str


class Run(msgspec.Struct, frozen=True):
    """batcher -> runner: the batch you asked for.

    For a generative unit the jobs are those that join, `running` those already under way, `leaving`
    those to forget, and the quantum lasts about `seconds`.
    """

    id: int
    lease: Lease
    jobs: tuple[JobRef, ...]
    running: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    seconds: float = 0.0
    generative: bool = False
    attempt: int = 1


class Outcome(msgspec.Struct, frozen=True):
    """How one job ended: `output` names its result, or `failure` says why there is none."""

    job: str
    output: str | None = None
    failure: Failure | None = None


class Progress(msgspec.Struct, frozen=True):
    """runner -> batcher: a piece of text for a job that goes on."""

    job: str
    text: str
    tokens: int


class Finished(msgspec.Struct, frozen=True):
    """runner -> batcher: a batch is done; these are its jobs' ends, and `spent` seconds of the slot."""

    run: int
    lease: Lease
    outcomes: tuple[Outcome, ...]
    spent: float
    progress: tuple[Progress, ...] = ()
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Idle:
    """runner -> batcher: send me a batch when you have one."""

    slot: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """batcher -> memory manager: work waits for this unit."""

    unit: str


@dataclass(frozen=True, slots=True)
class Unwanted:
    """batcher -> memory manager: nothing waits for this unit any more."""

    unit: str


@dataclass(frozen=True, slots=True)
class Need:
    """batcher -> memory manager: a lease for this slot, please; the next job alone costs `min_cost`."""

    unit: str
    device: str
    slot: str
    min_cost: int
    want_cost: int
    kv_floor: int = 0
    """KV tokens that the unit's running sequences hold."""
    kv_min: int = 0
    """What it would hold with the first sequence that waits."""
    kv_want: int = 0
    """What it would hold with all that could join."""


@dataclass(frozen=True, slots=True)
class Granted:
    """memory manager -> batcher: run a batch under this lease. `kv_tokens` is the new total."""

    lease: Lease
    kv_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Denied:
    """memory manager -> batcher: not now. `Ready` or `Unavailable` follows for this unit."""

    slot: str
    unit: str
    device: str
    reason: str


@dataclass(frozen=True, slots=True)
class TooLarge:
    """memory manager -> batcher: no job above `max_cost` or `max_kv_tokens` can ever run there."""

    slot: str
    unit: str
    device: str
    max_cost: int
    max_kv_tokens: int


@dataclass(frozen=True, slots=True)
class Ready:
    """memory manager -> batcher: leases for this unit on this device can be had (again)."""

    unit: str
    device: str
    load_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Left:
    """memory manager -> batcher: the unit gives no more leases on this device."""

    unit: str
    device: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """memory manager -> batcher: what waits for this unit cannot be served."""

    unit: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class Release:
    """batcher -> memory manager: a lease is over; the unit's sequences now hold `kv_tokens`."""

    lease: Lease
    kv_tokens: int = 0
    spent: float = 0.0
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Inspected:
    """a thread -> memory manager: what a unit will take, or why it cannot be had."""

    unit: str
    footprint: Footprint | None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """a thread -> memory manager: the weights are on the device."""

    unit: str
    device: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """a thread -> memory manager: they are not, and why."""

    unit: str
    device: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class Unloaded:
    """a thread -> memory manager: the weights are gone from the device."""

    unit: str
    device: str


@dataclass(frozen=True, slots=True)
class Observed:
    """a sampler -> memory manager: what others hold on this device, as its driver sees it."""

    device: str
    foreign_bytes: int


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
