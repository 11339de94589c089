"""Rows of a file on their way into the tables, some at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from engine.errors import InvalidInput
from engine.records import files
from engine.records.rows import storable
from engine.records.tables import table

PIECE = 2000
"""Rows written in one go: live rows wait meanwhile."""


@dataclass(slots=True)
class Piece:
    header: Mapping[str, Any]
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    count: int = 0

    def insert(self, db: Database, number: int) -> None:
        for said, rows in self.rows.items():
            name = files.TABLES[said]
            known = table(db, name).columns_dict
            table(db, name).insert_all(
                {"recording": number, "recorded_at": self.header["started_at"] + found["at"]}
                | {column: _stored(value) for column, value in found.items() if column in known}
                for found in rows
            )


def pieces(path: Path) -> Iterator[Piece]:
    """The first has only the header, with its length filled in. Raises InvalidInput.

    The file is read to its end before anything is taken of it: one that is broken changes nothing.
    """
    last, header = 0.0, {}
    for said, found in files.read(path):
        if said == "header":
            header = found
        else:
            last = max(last, found["at"])
    if header.get("seconds") is None:
        header = {**header, "seconds": last}
    yield Piece(header)
    piece = Piece(header)
    for said, found in files.read(path):
        if said == "header":
            continue
        piece.rows.setdefault(said, []).append(found)
        piece.count += 1
        if piece.count >= PIECE:
            yield piece
            piece = Piece(header)
    if piece.count:
        yield piece


def _stored(value: Any) -> object:
    if isinstance(value, dict | list):
        return json.dumps(value)
    if isinstance(value, str | int | float | None):
        return storable(value)
    raise InvalidInput(f"{value!r} is nothing that a recording holds.")
