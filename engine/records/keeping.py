"""Recordings listed, deleted, trimmed, written to files and read from them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread
from sqlite_utils import Database

from engine.records import content, files, importing, rotation, stretches
from engine.records.sharing import Sharing
from engine.records.views import RecordingInfo

T = TypeVar("T")


class InTurn(Protocol):
    """Do it in the writer's thread, after everything told so far, as one transaction."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


class Keeping:
    def __init__(self, db: Database, path: Path, in_turn: InTurn) -> None:
        self._db = db
        self._path = path
        self._in_turn = in_turn
        self._readers = CapacityLimiter(1)
        self._importing = CapacityLimiter(1)  # a long file keeps nobody from the list

    async def infos(self) -> list[RecordingInfo]:
        """Counting takes long where there is much: it has a connection of its own, beside the writer."""
        await self._in_turn(lambda: None)
        return await to_thread.run_sync(self._counted, limiter=self._readers)

    def _counted(self) -> list[RecordingInfo]:
        with closing(files.connect(self._path)) as connection:
            return stretches.infos(Database(connection))

    async def delete(self, name: str) -> None:
        await self._in_turn(lambda: stretches.delete(self._db, name))
        content.remove(self._path, name)

    async def trim(self, name: str | None, seconds: float) -> None:
        """A recording to its last so many seconds; without a name what no recording holds."""
        if name is not None:
            await self._in_turn(lambda: stretches.trim(self._db, name, seconds))
            return
        await self._in_turn(lambda: rotation.rotate(self._db, time.time() - seconds))

    async def export(self, name: str, out: Path, shareable: bool) -> None:
        """By a connection of its own, beside the writer."""
        await self._in_turn(lambda: None)
        work = self._path, name, out, Sharing() if shareable else None
        await to_thread.run_sync(files.write, *work, limiter=self._readers)

    async def take_in(self, name: str, path: Path) -> None:
        """A few rows at a time, so that live rows come in between. What fails leaves nothing behind."""
        pieces, turn = importing.pieces(path), self._importing
        head = await to_thread.run_sync(next, pieces, limiter=turn)
        number = await self._in_turn(lambda: stretches.insert(self._db, name, head.header))
        try:
            while (piece := await to_thread.run_sync(next, pieces, None, limiter=turn)) is not None:
                await self._in_turn(partial(piece.insert, self._db, number))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._in_turn(lambda: stretches.delete(self._db, name))
            raise
        await self._in_turn(lambda: stretches.imported(self._db, number))
