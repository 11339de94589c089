"""What the recorder takes: what happened, and what operators want of recordings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.actors.actor import Reply
from engine.actors.messages import Event
from engine.events import Acted, ContentSeen
from engine.records.views import PayloadWish, RecordingInfo


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
    """operator -> recorder: end what runs. The answer is its name. `learned` is as at its end."""

    reply: Reply[str]
    learned: Mapping[str, Any]


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
