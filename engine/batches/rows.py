"""Files and batches in `state.db`. The state store is the only writer; contents are files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from sqlite_utils import Database, Migrations
from sqlite_utils.db import Table

from engine.batches.kept import Batch, File

Kept = TypeVar("Kept", File, Batch)

migrations = Migrations("batches")


@migrations()
def files_and_batches(db: Database) -> None:
    """`said` is the whole value as JSON, as `engine/batches/kept.py` has it."""
    for name in ("files", "batches"):
        _table(db, name).create({"id": str, "created_at": float, "said": str}, pk="id")


def files(db: Database) -> dict[str, File]:
    """The oldest first."""
    return _all(db, "files", File)


def batches(db: Database) -> dict[str, Batch]:
    """The oldest first."""
    return _all(db, "batches", Batch)


def keep(db: Database, files: Mapping[str, File | None], batches: Mapping[str, Batch | None]) -> None:
    """By their ids; None is to be forgotten."""
    _keep(_table(db, "files"), files)
    _keep(_table(db, "batches"), batches)


def _all(db: Database, name: str, kind: type[Kept]) -> dict[str, Kept]:
    migrations.apply(db)
    rows = _table(db, name).rows_where(order_by="created_at, rowid")
    return {row["id"]: msgspec.json.decode(row["said"], type=kind) for row in rows}


def _keep(table: Table, values: Mapping[str, File | None] | Mapping[str, Batch | None]) -> None:
    for key, value in values.items():
        if value is None:
            table.delete_where("id = ?", [key])
        else:
            said = msgspec.json.encode(value).decode()
            table.upsert({"id": key, "created_at": value.created_at, "said": said}, pk="id")


def _table(db: Database, name: str) -> Table:
    table = db[name]
    assert isinstance(table, Table)
    return table
