"""What must survive: pins, operators' actions, learned run times. A commit is on disk when answered."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, assert_never

from anyio import CapacityLimiter, to_thread
from sqlite_utils import Database, Migrations
from sqlite_utils.db import Table

from engine.actors.actor import Actor, Mailbox, Reply
from engine.actors.messages import Conclude, Intend, KeepCurves, StateMessage
from engine.errors import EngineError

migrations = Migrations("state")


@migrations()
def first_tables(db: Database) -> None:
    """`audit.outcome` is NULL while an action is under way, or when a crash ended it."""
    _table(db, "pins").create({"unit": str, "since": float, "who": str}, pk="unit")
    _table(db, "curves").create({"unit": str, "device": str, "points": str}, pk=("unit", "device"))
    _table(db, "audit").create(
        {
            "id": int,
            "recorded_at": float,
            "who": str,
            "action": str,
            "target": str,
            "reason": str,
            "outcome": str,
            "concluded_at": float,
        },
        pk="id",
    )


def _table(db: Database, name: str) -> Table:
    table = db[name]
    assert isinstance(table, Table)
    return table


def open_database(path: Path, synchronous: str) -> Database:
    """A database in WAL mode for one connection that several threads use in turn."""
    import sqlite3

    path.parent.mkdir(parents=True, exist_ok=True)
    db = Database(sqlite3.connect(path, check_same_thread=False))
    db.enable_wal()
    db.execute(f"pragma synchronous={synchronous}")
    return db


def pins(db: Database) -> list[str]:
    """Units that were pinned when the server last stopped, the oldest pin first."""
    migrations.apply(db)
    return [row["unit"] for row in _table(db, "pins").rows_where(order_by="since")]


def curves(db: Database) -> dict[tuple[str, str], Mapping[str, tuple[float, float, int]]]:
    """Learned run times by unit and device."""
    migrations.apply(db)
    return {(r["unit"], r["device"]): json.loads(r["points"]) for r in _table(db, "curves").rows}


class StateStore(Actor[StateMessage]):
    def __init__(self, mailbox: Mailbox[StateMessage], db: Database) -> None:
        super().__init__(mailbox)
        migrations.apply(db)
        self._db = db
        self._writer = CapacityLimiter(1)

    def handle(self, message: StateMessage) -> None:
        match message:
            case Intend():
                self.spawn(self._commit, message.reply, lambda: self._intend(message))
            case Conclude():
                self.spawn(self._commit, message.reply, lambda: self._conclude(message))
            case KeepCurves():
                self.spawn(self._commit, message.reply, lambda: self._keep(message))
            case _:
                assert_never(message)

    async def _commit(self, reply: Reply[Any], work: Callable[[], object]) -> None:
        def atomically() -> object:
            with self._db.atomic():
                return work()

        try:
            reply.resolve(await to_thread.run_sync(atomically, limiter=self._writer))
        except Exception as error:
            reply.fail(EngineError(f"The state database refused a write: {error}"))

    def _intend(self, message: Intend) -> object:
        row = {
            "recorded_at": time.time(),
            "who": message.who,
            "action": message.action,
            "target": message.target,
            "reason": message.reason,
        }
        return _table(self._db, "audit").insert(row).last_pk

    def _conclude(self, message: Conclude) -> None:
        now = time.time()
        _table(self._db, "audit").update(message.intent, {"outcome": message.outcome, "concluded_at": now})
        if message.pinned:
            pin = {"unit": message.pinned, "since": now, "who": message.who}
            _table(self._db, "pins").upsert(pin, pk="unit")
        if message.unpinned:
            _table(self._db, "pins").delete_where("unit = ?", [message.unpinned])

    def _keep(self, message: KeepCurves) -> None:
        rows = [
            {"unit": unit, "device": device, "points": json.dumps(points)}
            for (unit, device), points in message.curves.items()
        ]
        _table(self._db, "curves").upsert_all(rows, pk=("unit", "device"))
