"""The messages of serving that carry a reply, and which actor takes which.

The others are plain data, in `engine/conversation.py`; recorder and state store have files of their own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

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
from engine.estimates import Costed, Estimated, Tokens
from engine.events import (
    AnswerEncoded,
    BatchDone,
    JobsDropped,
    RequestDone,
    ResidencyChanged,
)
from engine.requests import Delta, Request, Response, Usage
from engine.scheduling.lanes import Job, read_with

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream


class Submit(msgspec.Struct, frozen=True):
    """edge -> router: one request; `deltas` gets its text as it is written.

    batcher -> router: the model that was asked (`degraded_from`) has no room; another may answer.
    """

    reply: Reply[Response]
    request: Request
    deltas: MemoryObjectSendStream[Delta] | None = None
    degraded_from: str | None = None


class Enqueue(msgspec.Struct, frozen=True):
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

    @property
    def units(self) -> set[str]:
        """Its unit, and the adapters that its jobs are read with."""
        return {self.unit, *read_with(self.jobs)}

    def warm(self, there: Collection[str]) -> bool:
        """Whether all of its units are there."""
        return all(unit in there for unit in self.units)


@dataclass(frozen=True, slots=True)
class Estimate:
    """edge -> router: what would this request cost, and how would it fare? Nothing of it is run."""

    reply: Reply[Estimated]
    request: Request


@dataclass(frozen=True, slots=True)
class Tokenize:
    """edge -> router: these texts as the model's tokenizer cuts them. No weights are loaded."""

    reply: Reply[list[Tokens]]
    model: str
    texts: tuple[str, ...]
    special: bool
    """With the special tokens that the model reads around a text."""


@dataclass(frozen=True, slots=True)
class Spell:
    """edge -> router: the texts that these ids of the model's tokenizer stand for."""

    reply: Reply[list[str]]
    model: str
    ids: tuple[tuple[int, ...], ...]
    special: bool


@dataclass(frozen=True, slots=True)
class Foresee:
    """router -> batcher: how would these jobs, all of one unit, fare if they came now?"""

    reply: Reply[Estimated]
    unit: str
    jobs: tuple[Job, ...]
    costed: Costed


class Let(msgspec.Struct, frozen=True):
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
    reason: str = "by an operator"
    """For the log and the books."""


@dataclass(frozen=True, slots=True)
class Pin:
    """operator -> memory manager: make this unit resident and never evict it."""

    reply: Reply[None]
    unit: str
    device: str | None = None
    """Where; None leaves it to the memory manager."""
    min_slots: int = 1
    """So many of its batches always have room to run at once."""
    passing: bool = False
    """It is over soon: a unit that has no room beside it waits, and is not refused."""


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


Event = RequestDone | BatchDone | JobsDropped | ResidencyChanged
RouterMessage = Submit | Estimate | Tokenize | Spell | Let | Pause | Resume | Drain
BatcherMessage = (
    Enqueue | Foresee | Drain | Idle | Granted | Denied | TooLarge | Ready | Left | Unavailable | Finished
)
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
TelemetryMessage = Event | AnswerEncoded
