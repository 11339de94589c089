"""Traffic, in SQLite: one row a request, a batch and a change of residency. What it drops it counts.

One actor, one connection, one writer thread; never a wait on the event loop.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections import deque
from dataclasses import asdict
from typing import Any, assert_never

import anyio
from anyio import CapacityLimiter, to_thread
from sqlite_utils import Database, Migrations
from sqlite_utils.db import Table

from engine.actors.actor import Actor, Mailbox, Reply
from engine.actors.messages import Flush, RecorderMessage
from engine.events import BatchDone, JobsDropped, RequestDone, ResidencyChanged

EVERY = 0.25
"""Seconds between writes: what a crash can lose."""

MAX_ROWS = 50_000
"""Rows held for the writer. Beyond it the newest are dropped: the disk cannot follow."""

LARGEST = 2**63 - 1

migrations = Migrations("traffic")


@migrations()
def first_tables(db: Database) -> None:
    """Times are seconds since the epoch (`recorded_at`) and durations in seconds."""
    _table(db, "requests").create(
        {
            "id": int,
            "recorded_at": float,
            "request": str,
            "model": str,
            "task": str,
            "service_class": int,
            "session": str,
            "outcome": str,
            "items": int,
            "cost": int,
            "input_tokens": int,
            "output_tokens": int,
            "prepare_seconds": float,
            "queue_seconds": float,
            "load_seconds": float,
            "run_seconds": float,
            "total_seconds": float,
            "cold": int,
            "device": str,
            "batches": str,
        },
        pk="id",
    ).create_index(["recorded_at"])
    _table(db, "batches").create(
        {
            "id": int,
            "recorded_at": float,
            "batch": int,
            "unit": str,
            "device": str,
            "slot": str,
            "jobs": int,
            "cost": int,
            "seconds": float,
            "predicted": float,
        },
        pk="id",
    ).create_index(["recorded_at"])
    _table(db, "residency").create(
        {
            "id": int,
            "recorded_at": float,
            "unit": str,
            "device": str,
            "event": str,
            "seconds": float,
            "weights_bytes": int,
            "reason": str,
        },
        pk="id",
    ).create_index(["recorded_at"])


def _table(db: Database, name: str) -> Table:
    table = db[name]
    assert isinstance(table, Table)
    return table


def _storable(value: object) -> object:
    """SQLite refuses half a surrogate pair and 65 bits; a client's text or a broken clock may have them."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return max(-LARGEST, min(LARGEST, value)) if isinstance(value, int) else value


class Recorder(Actor[RecorderMessage]):
    def __init__(
        self, mailbox: Mailbox[RecorderMessage], db: Database, *, keep_days: int, every: float = EVERY
    ) -> None:
        super().__init__(mailbox)
        migrations.apply(db)
        self._db = db
        self._every = every
        self._keep_days = keep_days
        self._rows: deque[tuple[str, dict[str, Any]]] = deque()
        self._writing = 0  # rows that the writer has and has not written yet
        self._flushes: list[Reply[None]] = []
        self._flush_at = math.inf
        self._trim_at = 0.0
        self._writer = CapacityLimiter(1)
        self.dropped = 0

    def handle(self, message: RecorderMessage) -> None:
        match message:
            case RequestDone():
                row = asdict(message) | {"batches": ",".join(f"{b}:{n}" for b, n in message.batches)}
                self._add("requests", row, row.pop("arrived"))
            case BatchDone():
                row = asdict(message)
                self._add("batches", row, row.pop("started"))
            case ResidencyChanged():
                row = asdict(message)
                self._add("residency", row, row.pop("at"))
            case JobsDropped():
                return  # each of their requests leaves a row of its own
            case Flush():
                self._flushes.append(message.reply)
                self._flush_at = -math.inf
            case _:
                assert_never(message)

    def _add(self, table: str, row: dict[str, Any], at: float) -> None:
        if len(self._rows) + self._writing >= MAX_ROWS:
            self.dropped += 1
            return
        row["recorded_at"] = time.time() - (anyio.current_time() - at)
        self._rows.append((table, {name: _storable(value) for name, value in row.items()}))
        self._flush_at = min(self._flush_at, anyio.current_time() + self._every)

    def wake_at(self) -> float:
        return self._flush_at

    def wake(self) -> None:
        rows, self._rows = self._rows, deque()
        flushes, self._flushes = self._flushes, []
        self._flush_at = math.inf
        self._writing += len(rows)
        self.spawn(self._write, rows, flushes)

    async def _write(self, rows: deque[tuple[str, dict[str, Any]]], flushes: list[Reply[None]]) -> None:
        try:
            await to_thread.run_sync(self._insert, rows, limiter=self._writer)
        except sqlite3.Error:  # the disk is full or gone: live traffic goes on
            self.dropped += len(rows)
        self._writing -= len(rows)
        for reply in flushes:
            reply.resolve(None)

    def _insert(self, rows: deque[tuple[str, dict[str, Any]]]) -> None:
        tables: dict[str, list[dict[str, Any]]] = {}
        for table, row in rows:
            tables.setdefault(table, []).append(row)
        with self._db.atomic():
            for table, inserted in tables.items():
                _table(self._db, table).insert_all(inserted)
            if time.time() >= self._trim_at:
                self._trim_at = time.time() + 3600
                oldest = time.time() - self._keep_days * 86400
                for table in ("requests", "batches", "residency"):
                    _table(self._db, table).delete_where("recorded_at < ?", [oldest])
