"""Every message in the engine: those that carry a reply, and which actor takes which.

The others are plain data, in `engine/conversation.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.actors.actor import Reply
from engine.conversation import (
    Denied,
    Expected,
    Finished,
    Granted,
    Idle,
    Inspected,
    Left,
    Loaded,
    LoadFailed,
    Lost,
    Need,
    Observed,
    Ready,
    Release,
    Run,
    Spread,
    TooLarge,
    Unavailable,
    Unloaded,
    Unwanted,
    Wanted,
)
from engine.errors import EngineError
from engine.events import AnswerEncoded, BatchDone, JobsDropped, RequestDone, ResidencyChanged
from engine.requests import Delta, Request, Response, Usage
from engine.scheduling.lanes import Job

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream


@dataclass(frozen=True, slots=True)
class Submit:
    """edge -> router: one request; `deltas` gets its text as it is written.

    batcher -> router: the model that was asked (`degraded_from`) has no room; another may answer.
    """

    reply: Reply[Response]
    request: Request
    deltas: MemoryObjectSendStream[Delta] | None = None
    degraded_from: str | None = None


@dataclass(frozen=True, slots=True)
class Enqueue:
    """router -> batcher: a request whose items are prepared. `failed` are items that could not be."""

    reply: Reply[Response]
    request: Request
    number: str
    """The engine's own name for it; a client's may come twice."""
    model: str
    unit: str
    jobs: tuple[Job, ...]
    usages: tuple[Usage, ...]
    failed: dict[int, EngineError]
    prepare_seconds: float
    received: float
    held_bytes: int
    degrade: str | None = None
    """The model that answers when this one has no room."""
    degraded_from: str | None = None
    deltas: MemoryObjectSendStream[Delta] | None = None


@dataclass(frozen=True, slots=True)
class Let:
    """batcher -> router: a request is over, and what it held is free again."""

    held_bytes: int


@dataclass(frozen=True, slots=True)
class Load:
    """operator -> memory manager: make this unit resident."""

    reply: Reply[None]
    unit: str


@dataclass(frozen=True, slots=True)
class Unload:
    """operator -> memory manager: let this unit go as soon as its leases end."""

    reply: Reply[None]
    unit: str


@dataclass(frozen=True, slots=True)
class Pin:
    """operator -> memory manager: make this unit resident and never evict it.

    The answer names the units that can no longer be resident beside what is pinned.
    """

    reply: Reply[tuple[str, ...]]
    unit: str
    device: str | None = None
    """Where; None leaves it to the memory manager."""
    min_slots: int = 1
    """So many of its batches always have room to run at once."""


@dataclass(frozen=True, slots=True)
class Unpin:
    """operator -> memory manager: this unit may be evicted again."""

    reply: Reply[None]
    unit: str


@dataclass(frozen=True, slots=True)
class Pause:
    """operator -> router: take nothing new for this model; what waits goes on."""

    reply: Reply[None]
    model: str


@dataclass(frozen=True, slots=True)
class Resume:
    """operator -> router: take requests for this model again."""

    reply: Reply[None]
    model: str


@dataclass(frozen=True, slots=True)
class Drain:
    """operator -> router: answer when no request for this model is being prepared any more.

    engine -> batcher: answer when no request for these units is open any more.
    """

    reply: Reply[None]
    model: str
    units: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Flush:
    """anyone -> recorder: answer once everything told so far is on disk."""

    reply: Reply[None]


@dataclass(frozen=True, slots=True)
class Intend:
    """edge -> state store: an operator is about to do this. The answer is the audit row's number."""

    reply: Reply[int]
    who: str
    action: str
    target: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Conclude:
    """edge -> state store: how it ended, and what is pinned or no longer pinned since."""

    reply: Reply[None]
    intent: int
    who: str
    outcome: str
    pinned: str | None = None
    unpinned: str | None = None


@dataclass(frozen=True, slots=True)
class KeepCurves:
    """engine -> state store: learned run times by unit and device."""

    reply: Reply[None]
    curves: Mapping[tuple[str, str], Mapping[str, tuple[float, float, int]]]


Event = RequestDone | BatchDone | JobsDropped | ResidencyChanged
RouterMessage = Submit | Let | Pause | Resume | Drain
BatcherMessage = Enqueue | Drain | Idle | Granted | Denied | TooLarge | Ready | Left | Unavailable | Finished
RunnerMessage = Run
MemoryMessage = (
    Wanted
    | Unwanted
    | Expected
    | Spread
    | Lost
    | Need
    | Release
    | Inspected
    | Loaded
    | LoadFailed
    | Unloaded
    | Observed
    | Load
    | Unload
    | Pin
    | Unpin
)
RecorderMessage = Event | Flush
TelemetryMessage = Event | AnswerEncoded
StateMessage = Intend | Conclude | KeepCurves
