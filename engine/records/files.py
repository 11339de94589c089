"""A recording as a file: gzip, one JSON object a line. `docs/recordings.md` describes the form.

The first line is the header, the last counts what came between: a file that was cut off is known by it.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from engine import __version__
from engine.errors import InvalidInput, UnknownRecording
from engine.records import stretches
from engine.records.sharing import Sharing

VERSION = 1

NAMES = {
    "requests": "request",
    "batches": "batch",
    "residency": "change",
    "samples": "sample",
    "acts": "act",
    "losses": "loss",
}
"""What a row of each table is called in a file."""

TABLES = {said: name for name, said in NAMES.items()}

_AS_JSON = ("lines", "units")
"""Columns that hold JSON: they are written as what they hold."""


def write(database: Path, name: str, out: Path, sharing: Sharing | None = None) -> None:
    """Everything of the recording `name`, as it is on disk now. Raises UnknownRecording."""
    with closing(connect(database)) as db, gzip.open(out, "wb", compresslevel=5) as file:
        row = find(db, name)
        head = header(row)
        file.write(orjson.dumps(sharing.header(head) if sharing else head) + b"\n")
        counts: Counter[str] = Counter()
        for said, found in rows(db, row):
            shown = sharing.row(said, found) if sharing else found
            if shown is None:
                continue
            counts[said] += 1
            file.write(orjson.dumps({"is": said, **shown}) + b"\n")
        file.write(orjson.dumps({"is": "end", "rows": dict(counts)}) + b"\n")


def connect(database: Path) -> sqlite3.Connection:
    """To look only; a server may be writing meanwhile."""
    db = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    db.row_factory = sqlite3.Row
    return db


def find(db: sqlite3.Connection, name: str) -> Mapping[str, Any]:
    """The row of `recordings`. Raises UnknownRecording."""
    row = db.execute("select * from recordings where name = ?", [name]).fetchone()
    if row is None:
        raise UnknownRecording(f"There is no recording {name[:100]!r}; `serai record list` says which.")
    return dict(row)


def header(row: Mapping[str, Any]) -> dict[str, Any]:
    """Of a row of `recordings`. A recording that runs has no length yet: None."""
    ended = row["ended_at"]
    return {
        "serai_recording": VERSION,
        "name": row["name"],
        "started_at": row["started_at"],
        "seconds": None if ended is None else ended - row["started_at"],
        "closed": row["closed"] or "running",
        "seed": row["seed"] or 0,
        "server": __version__,
        "snapshot": json.loads(row["snapshot"] or "{}"),
    }


def rows(db: sqlite3.Connection, recording: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each is and its columns, those without a value left out; `at` in seconds from the start."""
    where, values = stretches.within(recording)
    for name, said in NAMES.items():
        for found in db.execute(f"select * from {name} where {where} order by recorded_at, id", values):
            made = {"at": round(found["recorded_at"] - recording["started_at"], 6)}
            for column in found.keys():  # noqa: SIM118  (a sqlite3.Row iterates over its values)
                value = found[column]
                if value is None or column in ("id", "recording", "recorded_at"):
                    continue
                made[column] = json.loads(value) if column in _AS_JSON else value
            yield said, made


def read(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The header first, as `header`; then every row. Raises InvalidInput that names file and line."""
    last: dict[str, float] = {}
    counts: Counter[str] = Counter()
    ended = False
    for number, found in _objects(path):
        where = f"{path}:{number}"
        if number == 1:
            yield "header", _header(found, where)
            continue
        said = found.pop("is", None)
        if said == "end":
            _check_end(found, counts, where)
            ended = True
            break
        if said not in TABLES:
            raise InvalidInput(f"{where}: {said!r} is nothing that a recording has.")
        at = found.get("at")
        if not isinstance(at, int | float):
            raise InvalidInput(f"{where}: a {said} needs `at`, in seconds.")
        if at < last.get(said, at):
            raise InvalidInput(
                f"{where}: the clock goes backwards, from {last[said]:.6f} to {at:.6f}. "
                "Sort the rows of each kind by `at`, or take the recording again."
            )
        last[said] = at
        counts[said] += 1
        yield said, found
    if not ended:
        raise InvalidInput(_cut_off(path, counts))
    if not counts["request"]:
        raise InvalidInput(f"{path} holds no requests: nothing was asked while it was recorded.")


def _cut_off(path: Path, counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    return f"{path} was cut off after {total} rows: its last line is missing. Export or copy it again."


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object. What breaks off in the middle ends here: `read` misses the last line."""
    try:
        with gzip.open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    found = orjson.loads(line)
                except ValueError as error:
                    if not line.endswith(b"\n"):
                        return
                    raise InvalidInput(f"{path}:{number}: {error}") from None
                if not isinstance(found, dict):
                    raise InvalidInput(f"{path}:{number}: expected an object.")
                yield number, found
    except (EOFError, zlib.error):
        return
    except gzip.BadGzipFile:
        raise InvalidInput(f"{path} is no recording: it is not gzip.") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None


def _header(found: dict[str, Any], where: str) -> dict[str, Any]:
    version = found.get("serai_recording")
    if version is None:
        raise InvalidInput(f"{where}: this is no recording: its first line has no serai_recording.")
    if version != VERSION:
        raise InvalidInput(
            f"{where}: this recording is of version {version}; this server reads version {VERSION}. "
            "Export it with the server that made it, or upgrade this one."
        )
    started, seconds = found.get("started_at"), found.get("seconds")
    if not isinstance(started, int | float) or not isinstance(seconds, int | float | None):
        raise InvalidInput(f"{where}: started_at and seconds are numbers.")
    return found


def _check_end(found: Mapping[str, Any], counts: Mapping[str, int], where: str) -> None:
    said = found.get("rows")
    if not isinstance(said, dict) or {k: v for k, v in said.items() if v} != dict(counts):
        raise InvalidInput(
            f"{where}: the file says it has {said} rows; it has {dict(counts)}. Copy it again."
        )
