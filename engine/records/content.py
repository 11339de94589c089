"""What requests contained, where an operator asked for that: a file that only its owner may read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
from sqlite_utils import Database

from engine.actors.state_store import open_database
from engine.records.files import connect
from engine.records.tables import table
from engine.requests import (
    EncodeOptions,
    ExtractOptions,
    GenerateOptions,
    Item,
    Options,
    Request,
    ScoreOptions,
    Task,
)

OPTIONS: dict[Task, type[Options]] = {
    Task.ENCODE: EncodeOptions,
    Task.SCORE: ScoreOptions,
    Task.EXTRACT: ExtractOptions,
    Task.GENERATE: GenerateOptions,
}


def place(database: Path, name: str) -> Path:
    """Where the content of the recording `name` is, if it was kept."""
    return database.parent / "content" / f"{name}.db"


def remove(database: Path, name: str) -> None:
    for end in ("", "-wal", "-shm"):
        with suppress(OSError):
            Path(f"{place(database, name)}{end}").unlink(missing_ok=True)


class Content:
    """The open file. Only the recorder's writer thread uses it."""

    def __init__(self, database: Path, name: str) -> None:
        self._db: Database = open_database(place(database, name), "normal")
        table(self._db, "content").create(
            {"id": int, "recorded_at": float, "request": str, "model": str, "body": bytes}, pk="id"
        )

    def write(self, found: list[tuple[float, Request, bytes]]) -> None:
        """Moments since the epoch, requests, and those as `packed`."""
        table(self._db, "content").insert_all(
            {"recorded_at": at, "request": request.id, "model": request.model, "body": body}
            for at, request, body in found
        )
        self._db.conn.commit()

    def close(self) -> None:
        self._db.close()


def packed(request: Request) -> bytes:
    """What it asks for, without who asked."""
    asked = {
        "task": request.task,
        "items": request.items,
        "options": request.options,
        "profile": request.profile,
    }
    return msgspec.msgpack.encode(asked)


def unpacked(body: bytes) -> tuple[Task, tuple[Item, ...], Options, str | None]:
    found: dict[str, Any] = msgspec.msgpack.decode(body)
    task = Task(found["task"])
    items = msgspec.convert(found["items"], tuple[Item, ...])
    return task, items, msgspec.convert(found["options"], OPTIONS[task]), found["profile"]


def read(path: Path) -> Iterator[tuple[float, str, str, bytes]]:
    """Moment since the epoch, request, model and body, in order of arrival."""
    with closing(connect(path)) as db:
        for row in db.execute("select recorded_at, request, model, body from content order by recorded_at"):
            yield row[0], row[1], row[2], row[3]
