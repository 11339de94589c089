"""What the state store takes: what is to last beyond the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.access.changes import Change, Known
from engine.actors.actor import Reply
from engine.batches.kept import Batch, File
from engine.wishes import Audited, Kept


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


@dataclass(frozen=True, slots=True)
class KeepBatches:
    """batches -> state store: files and batches as they are now, by id; None is to be forgotten."""

    reply: Reply[None]
    files: Mapping[str, File | None]
    batches: Mapping[str, Batch | None]


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
    | KeepBatches
)
