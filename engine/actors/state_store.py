"""What must survive: pins, pauses, operators' actions, what was learned. A commit is on disk when told."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, assert_never

from anyio import CapacityLimiter, to_thread
from sqlite_utils import Database, Migrations
from sqlite_utils.db import Table

from engine.access import rows as access
from engine.actors.actor import Actor, Mailbox, Reply
from engine.actors.state_messages import (
    ChangeAccess,
    Conclude,
    EndSession,
    History,
    Intend,
    KeepBatches,
    KeepCurves,
    KeepUses,
    KeepWorkspaces,
    ReadAccess,
    StateMessage,
)
from engine.batches import rows as batches
from engine.errors import EngineError, StorageFull
from engine.wishes import Adjusted, Audited, Closed, Opened, Pinned, Unpinned

log = logging.getLogger(__name__)

REFUSED = "The state database refused a write; the server's log says why."
NO_ROOM = "The disk with the state database is full: nothing was changed. Make room, and send it again."
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


@migrations()
def places_pauses_and_workspaces(db: Database) -> None:
    """A NULL `pins.device` is wherever the memory manager likes."""
    _table(db, "pins").add_column("device", str)
    _table(db, "pins").add_column("min_slots", int, not_null_default=1)
    _table(db, "audit").add_column("before", str, not_null_default="")
    _table(db, "audit").add_column("after", str, not_null_default="")
    _table(db, "audit").create_index(["target"])
    _table(db, "paused").create({"model": str, "since": float, "who": str}, pk="model")
    _table(db, "workspaces").create({"unit": str, "device": str, "seen": str}, pk=("unit", "device"))


@migrations()
def adjustments_of_limits(db: Database) -> None:
    """`values` is JSON, by the names that a catalogue entry gives them."""
    columns = {"target": str, "since": float, "who": str, "values": str}
    _table(db, "adjustments").create(columns, pk="target")


def _table(db: Database, name: str) -> Table:
    table = db[name]
    assert isinstance(table, Table)
    return table


def open_database(path: Path, synchronous: str) -> Database:
    """A database in WAL mode for one connection that several threads use in turn.

    Raises sqlite3.DatabaseError for a file that is none, or is damaged where it is looked at.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    with suppress(PermissionError):  # whoever may write it without owning it still can
        path.chmod(0o600)  # what keys and sessions are checked against is nobody else's to read
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        db = Database(connection)
        db.enable_wal()
        db.execute(f"pragma synchronous={synchronous}")
        return db
    except BaseException:
        connection.close()
        raise


def check(db: Database) -> None:
    """Read all of it and bring its tables up to date. Raises sqlite3.DatabaseError when it is damaged."""
    (said,) = db.execute("pragma quick_check(1)").fetchone()
    if said != "ok":
        raise sqlite3.DatabaseError(said)
    migrations.apply(db)


def pins(db: Database) -> list[Pinned]:
    """What was pinned when the server last stopped, the oldest pin first."""
    migrations.apply(db)
    rows = _table(db, "pins").rows_where(order_by="since")
    return [Pinned(row["unit"], row["device"], row["min_slots"]) for row in rows]


def paused(db: Database) -> frozenset[str]:
    """Models that take no requests until they are resumed; `*` is all of them."""
    migrations.apply(db)
    return frozenset(row["model"] for row in _table(db, "paused").rows)


def adjustments(db: Database) -> dict[str, Mapping[str, Any]]:
    """Limits, classes and shares that operators changed, by model or `model:profile`."""
    migrations.apply(db)
    return {row["target"]: json.loads(row["values"]) for row in _table(db, "adjustments").rows}


def curves(db: Database) -> dict[tuple[str, str], Mapping[str, tuple[float, float, int]]]:
    """Learned run times by unit and device."""
    migrations.apply(db)
    return {(r["unit"], r["device"]): json.loads(r["points"]) for r in _table(db, "curves").rows}


def workspaces(db: Database) -> dict[tuple[str, str], Mapping[str, Any]]:
    """What batches were seen to take, by unit and device."""
    migrations.apply(db)
    return {(r["unit"], r["device"]): json.loads(r["seen"]) for r in _table(db, "workspaces").rows}


def last_action(db: Database) -> int:
    """The number of the newest row of the audit; 0 when there is none."""
    migrations.apply(db)
    (number,) = db.execute("select coalesce(max(id), 0) from audit").fetchone()
    return int(number)


class StateStore(Actor[StateMessage]):
    def __init__(self, mailbox: Mailbox[StateMessage], db: Database) -> None:
        super().__init__(mailbox)
        migrations.apply(db)
        access.migrations.apply(db)
        batches.migrations.apply(db)
        self._db = db
        self._writer = CapacityLimiter(1)

    def handle(self, message: StateMessage) -> None:
        match message:
            case Intend():
                self.spawn(self._commit, message.reply, lambda: self._intend(message))
            case Conclude():
                self.spawn(self._commit, message.reply, lambda: self._conclude(message))
            case History():
                self.spawn(self._commit, message.reply, lambda: self._history(message))
            case KeepCurves():
                kept = "curves", "points", message.curves
                self.spawn(self._commit, message.reply, lambda: self._keep(*kept))
            case KeepWorkspaces():
                seen = "workspaces", "seen", message.workspaces
                self.spawn(self._commit, message.reply, lambda: self._keep(*seen))
            case ChangeAccess():
                said = message.change, message.who, message.reason
                self.spawn(self._commit, message.reply, lambda: access.change(self._db, *said))
            case ReadAccess():
                self.spawn(self._commit, message.reply, lambda: access.newer(self._db, message.generation))
            case EndSession():
                left = message.session, message.until
                self.spawn(self._commit, message.reply, lambda: access.end_session(self._db, *left))
            case KeepUses():
                self.spawn(self._commit, message.reply, lambda: access.keep_uses(self._db, message.uses))
            case KeepBatches():
                given = message.files, message.batches
                self.spawn(self._commit, message.reply, lambda: batches.keep(self._db, *given))
            case _:
                assert_never(message)

    async def _commit(self, reply: Reply[Any], work: Callable[[], object]) -> None:
        def atomically() -> object:
            with _immediate(self._db):
                return work()

        try:
            reply.resolve(await to_thread.run_sync(atomically, limiter=self._writer))
        except EngineError as error:
            reply.fail(error)
        except Exception as error:
            log.error("the state database refused a write: %s", error)
            full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            reply.fail(StorageFull(NO_ROOM) if full else EngineError(REFUSED))

    def _intend(self, message: Intend) -> object:
        row = {
            "recorded_at": time.time(),
            "who": message.who,
            "action": message.action,
            "target": message.target,
            "reason": message.reason,
            "before": message.before,
        }
        return _table(self._db, "audit").insert(row).last_pk

    def _conclude(self, message: Conclude) -> None:
        now, who = time.time(), message.who
        ended = {"outcome": message.outcome, "concluded_at": now, "after": message.after}
        _table(self._db, "audit").update(message.intent, ended)
        pins, paused = _table(self._db, "pins"), _table(self._db, "paused")
        match message.kept:
            case Pinned(unit, device, min_slots):
                row = {"unit": unit, "since": now, "who": who, "device": device, "min_slots": min_slots}
                pins.upsert(row, pk="unit")
            case Unpinned(unit):
                pins.delete_where("unit = ?", [unit])
            case Closed(model):
                paused.upsert({"model": model, "since": now, "who": who}, pk="model")
            case Opened(model):
                paused.delete_where("model = ?", [model])
            case Adjusted(target, values) if values:
                row = {"target": target, "since": now, "who": who, "values": json.dumps(dict(values))}
                _table(self._db, "adjustments").upsert(row, pk="target")
            case Adjusted(target):
                _table(self._db, "adjustments").delete_where("target = ?", [target])

    def _history(self, message: History) -> list[Audited]:
        """Of a model: also what was done to its units of another dtype, `model@dtype`, to its adapters and
        profiles, `model:name`."""
        parts = "substr(target, 1, length(?) + 1) in (? || '@', ? || ':')"
        mine, named = f"target = ? or {parts}", [message.target] * 4
        where, values = (mine, named) if message.target is not None else (None, None)
        rows = _table(self._db, "audit").rows_where(where, values, order_by="id desc", limit=message.limit)
        return [Audited(**row) for row in rows]

    def _keep(self, name: str, column: str, learned: Mapping[tuple[str, str], object]) -> None:
        rows = [
            {"unit": unit, "device": device, column: json.dumps(seen)}
            for (unit, device), seen in learned.items()
        ]
        _table(self._db, name).upsert_all(rows, pk=("unit", "device"))


@contextmanager
def _immediate(db: Database) -> Iterator[None]:
    """A transaction that writes from its start: one that only comes to write may find that it cannot."""
    db.conn.execute("begin immediate")
    try:
        yield
    except BaseException:
        db.conn.rollback()
        raise
    db.conn.commit()
