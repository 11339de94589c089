"""Traffic, in SQLite: one row a request, a batch and a change of residency. What it drops it counts.

One actor, one connection, one writer thread; never a wait on the event loop.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, assert_never

import anyio
from anyio import CapacityLimiter, to_thread
from sqlite_utils import Database

from engine.actors.actor import Actor, Mailbox, Reply
from engine.actors.recorder_messages import (
    DeleteRecording,
    ExportRecording,
    Flush,
    ImportRecording,
    ListRecordings,
    RecorderMessage,
    RecordingMessage,
    StartRecording,
    StopRecording,
    TrimRecords,
)
from engine.errors import EngineError, InvalidInput
from engine.events import Acted, BatchDone, ContentSeen, JobsDropped, RequestDone, ResidencyChanged
from engine.records import content, rotation, stretches
from engine.records.keeping import Keeping
from engine.records.payloads import Payloads, Taken
from engine.records.rows import Recorded, Row, row, samples
from engine.records.tables import migrations as migrations
from engine.records.tables import table
from engine.records.views import RecorderView, RunningView
from engine.view import EngineView

EVERY = 0.25
"""Seconds between writes: what a crash can lose."""

SAMPLED = 1.0
"""Seconds between looks at the devices, while a recording runs."""

MAX_ROWS = 50_000
"""Rows held for the writer. Beyond it the newest are dropped: the disk cannot follow."""

T = TypeVar("T")

Told = tuple[str, float, Recorded | Row]
"""Table, moment on the loop's clock, and what happened. It becomes a row in the writer's thread."""

log = logging.getLogger(__name__)


class Recorder(Actor[RecorderMessage]):
    """The only writer of `traffic.db`. `look` shows the devices; `shown` is told what it does."""

    def __init__(
        self,
        mailbox: Mailbox[RecorderMessage],
        db: Database,
        *,
        keep_days: int,
        every: float = EVERY,
        look: Callable[[], EngineView] | None = None,
        shown: Callable[[RecorderView], None] = lambda view: None,
    ) -> None:
        super().__init__(mailbox)
        try:
            migrations.apply(db)
            stretches.close_interrupted(db)
        except sqlite3.Error as error:  # a disk that is full keeps nobody from being served
            log.error("traffic is not recorded: %s", error)
        self._db = db
        self._path = Path(db.execute("pragma database_list").fetchone()[2])
        self._every = every
        self._rotation = rotation.Hourly(db, keep_days)
        self._look = look
        self._shown = shown
        self._events: deque[Told] = deque()
        self._writing = 0  # rows that the writer has and has not written yet
        self._flushes: list[Reply[None]] = []
        self._flush_at = math.inf
        self._sample_at = math.inf
        self._epoch: float | None = None  # added to the loop's clock: fixed while a recording runs
        self._writer = CapacityLimiter(1)
        self._keeping = Keeping(db, self._path, self._in_turn)
        self._running: int | None = None
        self._view = RecorderView(enabled=True)
        self._payloads: Payloads | None = None
        self._untold = 0  # rows that were lost since the last write that worked
        self._lost_at = 0.0
        self.dropped = 0

    def start(self) -> None:
        self._shown(self._view)

    def handle(self, message: RecorderMessage) -> None:
        match message:
            case RequestDone():
                self._add("requests", message.arrived, message)
            case BatchDone():
                self._add("batches", message.started, message)
            case ResidencyChanged():
                self._add("residency", message.at, message)
            case Acted():
                self._add("acts", message.at, message)
            case JobsDropped():
                return  # each of their requests leaves a row of its own
            case ContentSeen():
                if self._payloads is not None:
                    self._payloads.take(message.at, message.request, anyio.current_time())
                    self._flush_at = min(self._flush_at, anyio.current_time() + self._every)
            case Flush():
                self._flushes.append(message.reply)
                self._flush_at = -math.inf
            case _:
                self._operate(message)

    def _operate(self, message: RecordingMessage) -> None:
        match message:
            case StartRecording():
                self.spawn(self._answer, message.reply, self._begin, message)
            case StopRecording():
                self.spawn(self._answer, message.reply, self._end, message.learned)
            case ListRecordings():
                self.spawn(self._answer, message.reply, self._keeping.infos)
            case DeleteRecording():
                self.spawn(self._answer, message.reply, self._keeping.delete, message.name)
            case TrimRecords():
                self.spawn(self._answer, message.reply, self._keeping.trim, message.name, message.seconds)
            case ExportRecording():
                said = message.name, message.path, message.shareable
                self.spawn(self._answer, message.reply, self._keeping.export, *said)
            case ImportRecording():
                self.spawn(self._answer, message.reply, self._keeping.take_in, message.name, message.path)
            case _:
                assert_never(message)

    def _add(self, name: str, at: float, event: Recorded | Row) -> None:
        if len(self._events) + self._writing >= MAX_ROWS:
            self._lost(1)
            return
        self._events.append((name, at, event))
        if self._flush_at == math.inf:
            self._flush_at = anyio.current_time() + self._every

    def _lost(self, rows: int) -> None:
        if not self._untold:
            self._lost_at = anyio.current_time()
        self.dropped += rows
        self._untold += rows

    def wake_at(self) -> float:
        return min(self._flush_at, self._sample_at)

    def wake(self) -> None:
        now = anyio.current_time()
        if now >= self._sample_at:
            self._sample(now)
        if now >= self._flush_at:
            self._flush()

    def _sample(self, now: float) -> None:
        assert self._look is not None
        for sample in samples(self._look()):
            self._add("samples", now, sample)
        self._sample_at = max(now, self._sample_at + SAMPLED)
        if self._payloads is not None and now >= self._payloads.until and not self._payloads.ended:
            self._payloads.ended = True
            self.spawn(self._end_payloads)
        self._tell(self._view.running, self._view.trouble)

    def _flush(self) -> None:
        events, self._events = self._events, deque()
        flushes, self._flushes = self._flushes, []
        self._flush_at = math.inf
        self._writing += len(events)
        contents = self._payloads.drain() if self._payloads is not None else []
        self.spawn(self._write, events, contents, flushes, self._offset())

    def _offset(self) -> float:
        """From the loop's clock to the epoch: the same while a recording runs, however clocks are set."""
        if self._epoch is None or self._running is None:
            self._epoch = time.time() - anyio.current_time()
        return self._epoch

    async def _write(
        self, events: deque[Told], contents: list[Taken], flushes: list[Reply[None]], offset: float
    ) -> None:
        lost = self._untold
        try:
            await to_thread.run_sync(self._insert, events, contents, offset, lost, limiter=self._writer)
            self._untold -= lost
            self._trouble("")
        except sqlite3.Error as error:  # the disk is full or gone: live traffic goes on
            if not self._view.trouble:
                log.error("traffic is not recorded: %s", error)
            self._lost(len(events))
            self._trouble(str(error))
        self._writing -= len(events)
        for reply in flushes:
            reply.resolve(None)

    def _trouble(self, said: str) -> None:
        if said != self._view.trouble:
            self._tell(self._view.running, said)

    def _tell(self, running: RunningView | None, trouble: str) -> None:
        if running is not None and self._payloads is not None:
            running = self._payloads.shown(running.name, running.started_at, self._offset())
        self._view = RecorderView(True, self.dropped, running, trouble)
        self._shown(self._view)

    def _insert(self, events: deque[Told], contents: list[Taken], offset: float, lost: int) -> None:
        """In the writer's thread."""
        tables: dict[str, list[dict[str, Any]]] = {}
        for name, at, event in events:
            made = event if isinstance(event, dict) else row(event)
            tables.setdefault(name, []).append({"recorded_at": at + offset} | made)
        if lost:
            tables["losses"] = [{"recorded_at": self._lost_at + offset, "rows": lost}]
        with self._db.atomic():
            for name, rows in tables.items():
                table(self._db, name).insert_all(rows)
        if contents and self._payloads is not None:
            self._payloads.write(contents, offset)
        self._rotation.turn()

    async def _answer(self, reply: Reply[T], work: Callable[..., Any], *args: Any) -> None:
        """Whatever comes of it is told to who asked; nothing of it ends the recorder."""
        try:
            reply.resolve(await work(*args))
        except EngineError as error:
            reply.fail(error)
        except sqlite3.Error as error:
            reply.fail(EngineError(f"The database of traffic refused it: {error}."))
        except OSError as error:
            reply.fail(EngineError(f"The disk refused it: {error.strerror}."))
        except Exception as error:  # whoever sent what nobody thought of stops no server
            log.error("what was asked of a recording failed: %s", type(error).__name__)
            reply.fail(EngineError())

    async def _in_turn(self, work: Callable[[], T]) -> T:
        """In the writer's thread, after everything told so far, as one transaction."""

        def atomically() -> T:
            with self._db.atomic():
                return work()

        told: Reply[None] = Reply()
        self._flushes.append(told)
        self._flush()
        await told
        return await to_thread.run_sync(atomically, limiter=self._writer)

    async def _begin(self, message: StartRecording) -> None:
        now, wish = anyio.current_time(), message.payloads
        began = now + self._offset()

        def begin() -> tuple[int, content.Content | None]:
            number = stretches.start(self._db, message.name, message.who, began, message.snapshot)
            return number, content.Content(self._path, message.name) if wish is not None else None

        self._running, opened = await self._in_turn(begin)
        if opened is not None and wish is not None:
            self._payloads = Payloads(opened, wish, now + wish.seconds)
        self._sample_at = now if self._look is not None else math.inf
        self.mailbox.rouse()
        self._tell(RunningView(message.name, began), self._view.trouble)

    async def _end(self, learned: Mapping[str, Any]) -> str:
        number, running = self._running, self._view.running
        if number is None or running is None:
            raise InvalidInput("No recording runs.")
        kept = await self._end_payloads()
        ended = anyio.current_time() + self._offset()
        await self._in_turn(lambda: stretches.stop(self._db, number, ended, kept, learned))
        self._running, self._sample_at, self._payloads = None, math.inf, None
        self._tell(None, self._view.trouble)
        return running.name

    async def _end_payloads(self) -> dict[str, Any] | None:
        """What was kept of content, once nothing more is."""
        payloads = self._payloads
        if payloads is None:
            return None
        payloads.ended = True
        rest, offset = payloads.drain(), self._offset()
        await to_thread.run_sync(payloads.close, rest, offset, limiter=self._writer)
        return {"requests": payloads.requests, "bytes": payloads.size}
