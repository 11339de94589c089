"""Batches as the edge sees them: made, cancelled, and run while the server lives."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping

import anyio

from engine.access.principals import Principal
from engine.batches.kept import Batch, Counts, File, Job, Spent
from engine.batches.places import Places
from engine.batches.run import DISK_PAUSE, Caller, Run
from engine.batches.shelf import DAY, Shelf
from engine.config import Settings
from engine.errors import EngineError, InvalidInput, QueueFull, StateChanged

log = logging.getLogger(__name__)

SWEEP_EVERY = 600.0
"""Seconds between looks for what is over its time."""


class Batches:
    """`run` takes up whatever had not ended. A batch is on disk before its maker hears of it."""

    def __init__(self, settings: Settings, shelf: Shelf, clock: Callable[[], float]) -> None:
        self.shelf = shelf
        self.places = Places()
        self.clock = clock
        self._settings = settings
        self._runs: dict[str, Run] = {}
        self._making = Counter[str]()
        self._keyed = anyio.Lock()
        self._starting: Callable[[str], None] | None = None
        self._stop = anyio.Event()

    async def create(
        self,
        who: Principal,
        *,
        endpoint: str,
        input_file_id: str,
        window: str,
        seconds: float,
        metadata: Mapping[str, str] | None,
        output_seconds: float | None = None,
    ) -> Batch:
        """Raises UnknownFile, InvalidInput for a file of results, QueueFull, StorageFull."""
        file = self.shelf.file(who, input_file_id)
        if file.purpose != "batch":
            raise InvalidInput(f"{file.id} has the purpose {file.purpose!r}, not 'batch'.")
        self._check_room(who)
        now = self.clock()
        batch = Batch(
            id=f"batch_{secrets.token_hex(12)}",
            owner=who.id,
            endpoint=endpoint,
            input_file_id=file.id,
            window=window,
            created_at=now,
            expires_at=now + seconds,
            metadata=metadata,
            output_seconds=output_seconds,
            output_id=new_file(),
            error_id=new_file(),
        )
        return await self._kept(batch)

    async def submit(self, who: Principal, job: Job, endpoint: str, content: AsyncIterable[bytes]) -> Batch:
        """A job, whose lines are `content`, each with its end. Of two with one key there is the first.

        Raises QueueFull, StorageFull, StateChanged for a key that was used for another job, and
        whatever `content` raises.
        """
        if not job.key:
            return await self._submitted(who, job, endpoint, content)
        async with self._keyed:
            return self.made(who, job) or await self._submitted(who, job, endpoint, content)

    def made(self, who: Principal, job: Job) -> Batch | None:
        """What the key of `job` made before. Raises StateChanged where that is another job."""
        found = self.shelf.keyed(who, job.key) if job.key else None
        if found is not None and (found.job is None or found.job.digest != job.digest):
            raise StateChanged(f"This Idempotency-Key made {found.id}, which is another job; use a new one.")
        return found

    async def _submitted(
        self, who: Principal, job: Job, endpoint: str, content: AsyncIterable[bytes]
    ) -> Batch:
        self._check_room(who)
        now, key, days = self.clock(), f"job_{secrets.token_hex(12)}", self._settings.file_days
        expires_at = now + days * DAY
        file = File(
            id=new_file(),
            owner=who.id,
            filename=f"{key}.jsonl",
            purpose="job",
            bytes=0,
            created_at=now,
            expires_at=expires_at,
        )
        total = 0

        async def counted() -> AsyncIterator[bytes]:
            nonlocal total
            async for piece in content:
                total += piece.count(b"\n")
                yield piece

        await self.shelf.add(file, counted())
        batch = Batch(
            id=key,
            owner=who.id,
            endpoint=endpoint,
            input_file_id=file.id,
            window=f"{days}d",
            created_at=now,
            expires_at=expires_at,
            job=job,
            counts=Counts(total),
            output_id=new_file(),
            error_id=new_file(),
        )
        return await self._kept(batch)

    def _check_room(self, who: Principal) -> None:
        most = self._settings.batches_at_once
        if sum(batch.owner == who.id for batch in self.shelf.unfinished()) + self._making[who.id] >= most:
            said = (
                f"At most {most} batches and jobs of one caller run at once (batches_at_once); "
                "wait for one to end."
            )
            raise QueueFull(said).after(5.0)
        self.shelf.check_batches(who.id)

    async def _kept(self, batch: Batch) -> Batch:
        self._making[batch.owner] += 1
        try:
            await self.shelf.keep(batches={batch.id: batch})
        finally:
            self._making[batch.owner] -= 1
        if self._starting is not None:
            self._starting(batch.id)
        return batch

    async def cancel(self, key: str) -> Batch:
        """Raises InvalidInput for one that has ended."""

        def cancelled(batch: Batch) -> Batch:
            if batch.ended:
                raise InvalidInput(f"{key} is {batch.status} already.")
            return batch.cancelled(self.clock())

        batch = await self.shelf.change(key, cancelled)
        if run := self._runs.get(key):
            run.rouse()
        return batch

    def counts(self, batch: Batch) -> Counts:
        """As they are now."""
        run = self._runs.get(batch.id)
        return batch.counts if batch.ended or run is None else run.progress.counts

    def spent(self, batch: Batch) -> Spent:
        """As it is now."""
        run = self._runs.get(batch.id)
        return batch.spent if batch.ended or run is None else run.spent

    async def run(self, caller: Caller) -> None:
        """Until `stop`: then it returns when what is under way has ended."""
        if self.shelf.durable:
            await self.shelf.tidy()
        async with anyio.create_task_group() as tasks:

            def start(key: str) -> None:
                tasks.start_soon(self._go, key, caller)

            for batch in self.shelf.unfinished():
                start(batch.id)
            self._starting = start
            await self._sweep()

    def stop(self) -> None:
        self._starting = None
        self._stop.set()
        for run in self._runs.values():
            run.stop()

    async def _sweep(self) -> None:
        while not self._stop.is_set():
            try:
                await self.shelf.sweep(self.clock())
            except EngineError as error:
                log.error("old files stay: %s", error)
            with anyio.move_on_after(SWEEP_EVERY):
                await self._stop.wait()

    async def _go(self, key: str, caller: Caller) -> None:
        """Where something of ours fails, from what is on disk once more."""
        while not self._stop.is_set() and not self.shelf.current(key).ended:
            run = self._runs[key] = Run(key, self.shelf, caller, self.clock, self._settings)
            try:
                await run.go()
                continue
            except EngineError as error:
                log.error("%s waits: %s", key, error)
            except Exception:
                log.exception("%s failed and is taken up again", key)
            finally:
                del self._runs[key]
            with anyio.move_on_after(DISK_PAUSE):
                await self._stop.wait()


def new_file() -> str:
    """An id that nobody guesses."""
    return f"file-{secrets.token_hex(12)}"
