"""Every message in the engine: those that carry a reply, and which actor takes which.

The others are plain data, in `engine/conversation.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.access.changes import Change, Known
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
    Acted,
    AnswerEncoded,
    BatchDone,
    ContentSeen,
    JobsDropped,
    RequestDone,
    ResidencyChanged,
)
from engine.records.views import PayloadWish, RecordingInfo
from engine.requests import Delta, Request, Response, Usage
from engine.scheduling.lanes import Job
from engine.wishes import Audited, Kept

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


@dataclass(frozen=True, slots=True)
class Flush:
    """anyone -> recorder: answer once everything told so far is on disk."""

    reply: Reply[None]


@dataclass(frozen=True, slots=True)
class StartRecording:
    """operator -> recorder: what happens from now on has this name."""

    reply: Reply[None]
    name: str
    who: str
    snapshot: Mapping[str, Any]
    payloads: PayloadWish | None = None


@dataclass(frozen=True, slots=True)
class StopRecording:
    """operator -> recorder: end what runs. The answer is its name."""

    reply: Reply[str]


@dataclass(frozen=True, slots=True)
class ListRecordings:
    """anyone -> recorder: every recording, the newest first."""

    reply: Reply[list[RecordingInfo]]


@dataclass(frozen=True, slots=True)
class DeleteRecording:
    """operator -> recorder: forget this recording, and what was kept of its content."""

    reply: Reply[None]
    name: str


@dataclass(frozen=True, slots=True)
class TrimRecords:
    """operator -> recorder: keep the last so many seconds, of a recording or of everything else."""

    reply: Reply[None]
    name: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class ExportRecording:
    """operator -> recorder: write a recording to a file."""

    reply: Reply[None]
    name: str
    path: Path
    shareable: bool


@dataclass(frozen=True, slots=True)
class ImportRecording:
    """operator -> recorder: a recording that a file holds."""

    reply: Reply[None]
    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Intend:
    """edge -> state store: an operator is about to do this. The answer is the audit row's number."""

    reply: Reply[int]
    who: str
    action: str
    target: str
    reason: str = ""
    before: str = ""
    """How the target was, in a few words."""


@dataclass(frozen=True, slots=True)
class Conclude:
    """edge -> state store: how it ended, and what of it lasts."""

    reply: Reply[None]
    intent: int
    who: str
    outcome: str
    after: str = ""
    kept: Kept | None = None


@dataclass(frozen=True, slots=True)
class History:
    """edge -> state store: what operators did, the newest first; of one target, or of all."""

    reply: Reply[list[Audited]]
    limit: int
    target: str | None = None


@dataclass(frozen=True, slots=True)
class KeepCurves:
    """engine -> state store: learned run times by unit and device."""

    reply: Reply[None]
    curves: Mapping[tuple[str, str], Mapping[str, tuple[float, float, int]]]


@dataclass(frozen=True, slots=True)
class KeepWorkspaces:
    """engine -> state store: what batches were seen to take, by unit and device."""

    reply: Reply[None]
    workspaces: Mapping[tuple[str, str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ChangeAccess:
    """edge -> state store: a key or a user is made or changed. The answer is the table since then."""

    reply: Reply[Known]
    change: Change
    who: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReadAccess:
    """engine -> state store: the table of keys and users, if anybody changed it since `generation`."""

    reply: Reply[Known | None]
    generation: int


@dataclass(frozen=True, slots=True)
class EndSession:
    """edge -> state store: a user left; the session counts no more, though it would until `until`."""

    reply: Reply[Known]
    session: str
    until: float


@dataclass(frozen=True, slots=True)
class KeepUses:
    """engine -> state store: when keys and users were last seen, since the epoch."""

    reply: Reply[None]
    uses: Mapping[str, float]


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
RecordingMessage = (
    StartRecording
    | StopRecording
    | ListRecordings
    | DeleteRecording
    | TrimRecords
    | ExportRecording
    | ImportRecording
)
RecorderMessage = Event | Acted | ContentSeen | Flush | RecordingMessage
TelemetryMessage = Event | AnswerEncoded
StateMessage = (
    Intend
    | Conclude
    | History
    | KeepCurves
    | KeepWorkspaces
    | ChangeAccess
    | ReadAccess
    | EndSession
    | KeepUses
)
