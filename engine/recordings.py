"""What may be asked of recordings: started and stopped, listed, written to files and read from them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio

from engine.actors.actor import Mailbox
from engine.actors.recorder_messages import (
    DeleteRecording,
    ExportRecording,
    ImportRecording,
    ListRecordings,
    RecorderMessage,
    StartRecording,
    StopRecording,
    TrimRecords,
)
from engine.audit import Audit, Deed
from engine.errors import InvalidInput
from engine.events import ContentSeen
from engine.orders import RECORDINGS
from engine.records.views import PayloadWish, RecorderView, RecordingInfo
from engine.requests import Request
from engine.snapshot import Snapshotting

T = TypeVar("T")


class Recordings:
    """Every act is audited. Raises InvalidInput where nothing is recorded, UnknownRecording for a name that
    is none."""

    def __init__(
        self, recorder: Mailbox[RecorderMessage] | None, audit: Audit, snapshotting: Snapshotting
    ) -> None:
        self.view = RecorderView()
        self._recorder = recorder
        self._audit = audit
        self._snapshotting = snapshotting
        self._payload_models: frozenset[str] = frozenset()

    def show(self, view: RecorderView) -> None:
        """The recorder tells what it does."""
        self.view = view
        self._payload_models = frozenset(view.running.payload_models if view.running else ())

    def seen(self, request: Request) -> None:
        """A request came in. Its content goes to the recorder only where that was asked for."""
        if self._recorder is not None and request.model in self._payload_models:
            self._recorder.tell(ContentSeen(anyio.current_time(), request))

    async def start(
        self, name: str, who: str = "operator", reason: str = "", payloads: PayloadWish | None = None
    ) -> None:
        """From now on, until `stop`. With `payloads` what those models are asked is kept too."""
        box, snapshot = self._box(), self._snapshotting.take()

        async def begin() -> None:
            await box.ask(StartRecording, name=name, who=who, snapshot=snapshot, payloads=payloads)

        action = "record with content" if payloads else "record"
        await self._audited(action, name, who, reason, begin)

    async def stop(self, who: str = "operator", reason: str = "") -> str:
        """The name of what ran."""
        box, learned = self._box(), self._snapshotting.learned()
        name = self.view.running.name if self.view.running else ""
        return await self._audited(
            "stop recording", name, who, reason, lambda: box.ask(StopRecording, learned=learned)
        )

    async def infos(self) -> list[RecordingInfo]:
        """The newest first."""
        return await self._box().ask(ListRecordings)

    async def delete(self, name: str, who: str = "operator", reason: str = "") -> None:
        box = self._box()
        await self._audited(
            "delete recording", name, who, reason, lambda: box.ask(DeleteRecording, name=name)
        )

    async def trim(self, name: str | None, seconds: float, who: str = "operator", reason: str = "") -> None:
        """Keep the last so many seconds, of a recording or of what no recording holds."""
        box = self._box()
        await self._audited(
            "trim recording",
            name or "",
            who,
            reason,
            lambda: box.ask(TrimRecords, name=name, seconds=seconds),
        )

    async def export(
        self, name: str, path: Path, *, shareable: bool, who: str = "operator", reason: str = ""
    ) -> None:
        """Write it to `path`; `shareable` without what could tell who asked for what."""
        box = self._box()
        await self._audited(
            "export recording",
            name,
            who,
            reason,
            lambda: box.ask(ExportRecording, name=name, path=path, shareable=shareable),
        )

    async def take_in(self, name: str, path: Path, who: str = "operator", reason: str = "") -> None:
        """The recording that a file holds. Raises InvalidInput for one that is broken."""
        box = self._box()
        await self._audited(
            "import recording", name, who, reason, lambda: box.ask(ImportRecording, name=name, path=path)
        )

    async def noted(self, action: str, name: str, who: str, reason: str, do: Callable[[], Awaitable[T]]) -> T:
        """What is done with a recording elsewhere, a replay or a plan, in the history of those here."""
        return await self._audited(action, name, who, reason, do)

    def _box(self) -> Mailbox[RecorderMessage]:
        if self._recorder is None:
            raise InvalidInput("This server records no traffic; start it with recording = true.")
        return self._recorder

    async def _audited(
        self, action: str, name: str, who: str, reason: str, do: Callable[[], Awaitable[T]]
    ) -> T:
        return await self._audit.note(Deed(action, name, RECORDINGS, who, reason), do)
