"""What there is: files and batches in memory as the disk has them, never ahead of it. The only owner."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar, TypeVarTuple, Unpack

import msgspec
from anyio import CancelScope, Lock, to_thread

from engine.access.principals import Action, Principal, allowed
from engine.actors.actor import Mailbox
from engine.actors.state_messages import KeepBatches, StateMessage
from engine.batches.folder import PARTIAL, Folder
from engine.batches.kept import Batch, File
from engine.config import Settings
from engine.errors import BodyTooLarge, EngineError, InvalidInput, StorageFull, UnknownFile

Kept = TypeVar("Kept", File, Batch)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

DAY = 86400.0
MOST_KEPT = 10_000
"""Files of one caller, and as many batches: however small, each takes a row and memory for `file_days`."""


class Store(Protocol):
    """Where rows are kept. An answer means that they are on disk."""

    async def keep(self, files: Mapping[str, File | None], batches: Mapping[str, Batch | None]) -> None: ...


class StateBox:
    """The tables in `state.db`, through their one writer."""

    def __init__(self, state: Mailbox[StateMessage]) -> None:
        self._state = state

    async def keep(self, files: Mapping[str, File | None], batches: Mapping[str, Batch | None]) -> None:
        await self._state.ask(KeepBatches, files=files, batches=batches)


class Shelf:
    """Whoever asks sees what is theirs; an admin sees all."""

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        files: Mapping[str, File] | None = None,
        batches: Mapping[str, Batch] | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._files = dict(files or {})
        self._batches = dict(batches or {})
        self._used = sum(file.bytes for file in self._files.values())
        """Bytes of all that are kept."""
        self._arriving = 0
        self._coming: set[str] = set()
        """Ids of files whose content arrives."""
        self._changing = Lock()
        self.folder = Folder(settings.state_dir / "files")

    def files(self, who: Principal) -> list[File]:
        """The oldest first."""
        return [file for file in self._files.values() if _sees(who, file)]

    def batches(self, who: Principal) -> list[Batch]:
        """The oldest first; none that was made as a job."""
        return [batch for batch in self._batches.values() if batch.job is None and _sees(who, batch)]

    def jobs(self, who: Principal) -> list[Batch]:
        """The oldest first."""
        return [batch for batch in self._batches.values() if batch.job is not None and _sees(who, batch)]

    def keyed(self, who: Principal, key: str) -> Batch | None:
        """The job that `who` made with this key."""
        return next(
            (b for b in self._batches.values() if b.owner == who.id and b.job and b.job.key == key), None
        )

    def unfinished(self) -> list[Batch]:
        return [batch for batch in self._batches.values() if not batch.ended]

    def file(self, who: Principal, key: str) -> File:
        """Raises UnknownFile."""
        return _theirs(self._files.get(key), who, f"There is no file {key[:100]!r}.")

    def batch(self, who: Principal, key: str) -> Batch:
        """Raises UnknownFile."""
        found = self._batches.get(key)
        return _theirs(found if found and not found.job else None, who, f"There is no batch {key[:100]!r}.")

    def job(self, who: Principal, key: str) -> Batch:
        """Raises UnknownFile."""
        found = self._batches.get(key)
        return _theirs(found if found and found.job else None, who, f"There is no job {key[:100]!r}.")

    def known(self, key: str) -> Batch | None:
        """A batch or job, whoever asks."""
        return self._batches.get(key)

    def has(self, file: str) -> bool:
        return file in self._files

    def current(self, key: str) -> Batch:
        return self._batches[key]

    def check_batches(self, owner: str) -> None:
        """Raises StorageFull where no other is taken."""
        _few(self._batches.values(), owner, "batches")

    def path(self, file: File) -> Path:
        return self.folder.path(file.id)

    async def add(
        self, file: File, content: AsyncIterable[bytes], seconds: Callable[[], float | None] = lambda: None
    ) -> File:
        """Take in a file; its content is on disk when this returns. `bytes` is counted here.

        `seconds` is asked when all of it is there: how long it is kept, where that is not as `file` says.
        Raises BodyTooLarge, StorageFull, or whatever `content` raises; then nothing is left of it.
        """
        self._writable()
        _few(self._files.values(), file.owner, "files")
        self._coming.add(file.id)
        try:
            return await self._taken(file, content, seconds)
        finally:
            self._coming.remove(file.id)

    async def _taken(
        self, file: File, content: AsyncIterable[bytes], seconds: Callable[[], float | None]
    ) -> File:
        size, opened = 0, self._begun(file.id)
        try:
            async for chunk in content:
                self._check(size + len(chunk), len(chunk))
                self._arriving += len(chunk)
                size += len(chunk)
                await _disk(opened.write, chunk)
            await _disk(self.folder.finish, file.id, opened)
            kept = seconds()
            until = file.expires_at if kept is None else file.created_at + kept
            whole = msgspec.structs.replace(file, bytes=size, expires_at=until)
            await self.keep(files={file.id: whole})
            return whole
        finally:
            self._arriving -= size
            with CancelScope(shield=True), suppress(OSError):
                await to_thread.run_sync(opened.close)
            if file.id not in self._files:
                with CancelScope(shield=True):
                    await to_thread.run_sync(self.folder.drop, file.id)

    def _begun(self, key: str) -> BinaryIO:
        """At once: what a thread opens is lost when whoever waits for it is cancelled."""
        try:
            return self.folder.begin(key)
        except OSError as error:
            raise refusal(error) from None

    async def delete(self, who: Principal, key: str) -> None:
        """Raises UnknownFile, and InvalidInput for what a batch that runs needs."""
        self.file(who, key)
        using = [batch.id for batch in self.unfinished() if batch.input_file_id == key]
        if using:
            raise InvalidInput(f"{key} is the input of {using[0]}, which has not ended; cancel that first.")
        await self._forget({key: None}, {})

    async def sweep(self, now: float) -> None:
        """Forget what is over its time, `file_days` after it was made."""
        needed = {batch.input_file_id for batch in self.unfinished()}
        old = now - self._settings.file_days * DAY
        files = {f.id: None for f in self._files.values() if f.expires_at <= now and f.id not in needed}
        batches = {b.id: None for b in self._batches.values() if b.ended and b.created_at <= old}
        if files or batches:
            await self._forget(files, batches)

    async def tidy(self) -> None:
        """Remove contents that nothing names, after a crash. Others may come meanwhile: they stay."""
        names = await to_thread.run_sync(self.folder.names)
        running = {key for batch in self.unfinished() for key in (batch.output_id, batch.error_id)}
        needed = self._files.keys() | running | self._coming | {key + PARTIAL for key in self._coming}
        await to_thread.run_sync(self.folder.remove, set(names) - needed)

    @property
    def durable(self) -> bool:
        return self._store is not None

    async def change(
        self, key: str, change: Callable[[Batch], Batch], files: Mapping[str, File] | None = None
    ) -> Batch:
        """What `change` makes of a batch, which nobody else changes meanwhile."""
        async with self._changing:
            changed = change(self._batches[key])
            await self.keep(files, {key: changed})
            return changed

    async def keep(
        self,
        files: Mapping[str, File | None] | None = None,
        batches: Mapping[str, Batch | None] | None = None,
    ) -> None:
        """On disk, and seen, when this returns. It is done even when its caller leaves."""
        files, batches = files or {}, batches or {}
        with CancelScope(shield=True):
            await self._writable().keep(files, batches)
        self._used -= sum(self._files[key].bytes for key in files if key in self._files)
        self._used += sum(file.bytes for file in files.values() if file is not None)
        _put(self._files, files)
        _put(self._batches, batches)

    async def _forget(self, files: Mapping[str, None], batches: Mapping[str, None]) -> None:
        await self.keep(files, batches)
        for key in files:
            await to_thread.run_sync(self.folder.drop, key)

    def _check(self, size: int, more: int) -> None:
        most, total = self._settings.file_bytes, self._settings.files_bytes
        if size > most:
            raise BodyTooLarge(f"A file has at most {most} bytes (file_bytes); send several.")
        used = self._used + self._arriving
        if used + more > total:
            raise StorageFull(
                f"All files together have at most {total} bytes (files_bytes), and {used} are taken; "
                "delete what is not needed."
            )

    def _writable(self) -> Store:
        if self._store is None:
            raise EngineError("This server keeps no state, so it has no files.")
        return self._store


async def _disk(work: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
    """In a thread. Raises StorageFull where the disk has no room, EngineError where it fails otherwise."""
    try:
        return await to_thread.run_sync(work, *args)
    except OSError as error:
        raise refusal(error) from None


def refusal(error: OSError) -> EngineError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFull(f"The disk of state_dir took no more: {error.strerror}.")
    return EngineError(f"The disk of state_dir failed: {error.strerror}.")


def _put(table: dict[str, Kept], values: Mapping[str, Kept | None]) -> None:
    for key, value in values.items():
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value


def _few(kept: Iterable[File | Batch], owner: str, what: str) -> None:
    if sum(each.owner == owner for each in kept) >= MOST_KEPT:
        raise StorageFull(f"One caller has at most {MOST_KEPT} {what}; delete what is not needed, or wait.")


def _sees(who: Principal, kept: File | Batch) -> bool:
    return kept.owner == who.id or allowed(who, Action.ADMINISTER)


def _theirs(kept: Kept | None, who: Principal, missing: str) -> Kept:
    if kept is None or not _sees(who, kept):
        raise UnknownFile(missing)
    return kept
