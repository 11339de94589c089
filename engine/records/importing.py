"""Rows of a file on their way into the tables, some at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from engine.records import files
from engine.records.rows import storable
from engine.records.tables import table

PIECE = 2000
"""Rows written in one go: live rows wait meanwhile."""
HELD = 16 * 2**20
"""Characters of text in one go: with more of it there are fewer rows."""


@dataclass(slots=True)
class Piece:
    header: Mapping[str, Any]
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    count: int = 0
    size: int = 0

    def add(self, said: str, found: Mapping[str, Any]) -> None:
        row = {column: _stored(value) for column, value in found.items() if column != "at"}
        row["recorded_at"] = self.header["started_at"] + found["at"]
        self.rows.setdefault(files.TABLES[said], []).append(row)
        self.count += 1
        self.size += sum(len(value) for value in row.values() if isinstance(value, str))

    def insert(self, db: Database, number: int) -> None:
        for name, rows in self.rows.items():
            table(db, name).insert_all({"recording": number} | row for row in rows)


def pieces(path: Path) -> Iterator[Piece]:
    """The first has only the header, with its length filled in. Raises InvalidInput.

    The file is read to its end before anything is taken of it: one that is broken changes nothing.
    """
    last, header = 0.0, {}
    for said, found in files.read(path, path.name):
        if said == "header":
            header = found
        else:
            last = max(last, found["at"])
    if header.get("seconds") is None:
        header = {**header, "seconds": last}
    yield Piece(header)
    piece = Piece(header)
    for said, found in files.read(path, path.name):
        if said == "header":
            continue
        piece.add(said, found)
        if piece.count >= PIECE or piece.size >= HELD:
            yield piece
            piece = Piece(header)
    if piece.count:
        yield piece


def _stored(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict) else storable(value)
