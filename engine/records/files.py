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
from engine.records import checking, stretches
from engine.records.lines import MIB, Bounds, lines
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

BOUNDS = Bounds(first=8 * MIB, line=MIB, whole=16 * 2**10 * MIB)
"""The first line has a snapshot in it, of a catalogue however long."""


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
    snapshot = json.loads(row["snapshot"] or "{}")
    return {
        "serai_recording": VERSION,
        "name": row["name"],
        "started_at": checking.moment(row["started_at"]),
        "seconds": None if ended is None else ended - row["started_at"],
        "closed": row["closed"] or "running",
        "seed": row["seed"] if isinstance(row["seed"], int) else 0,
        "server": __version__,
        "snapshot": snapshot if isinstance(snapshot, dict) else {},
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
                made[column] = json.loads(value) if column in checking.AS_JSON else value
            yield said, made


def read(path: Path, called: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The header first, as `header`; then every row, of known columns. Raises InvalidInput that names the
    line, and the file by its path, or as it is `called`."""
    last: dict[str, float] = {}
    counts: Counter[str] = Counter()
    ended, started = False, 0.0
    called = called or str(path)
    for number, found in _objects(path, called):
        where = f"{called}:{number}"
        if number == 1:
            started = _header(found, where)["started_at"]
            yield "header", found
            continue
        said = found.pop("is", None)
        if said == "end":
            _check_end(found, counts, where)
            ended = True
            break
        if not isinstance(said, str) or said not in TABLES:
            raise InvalidInput(f"{where}: {str(said)[:100]!r} is nothing that a recording has.")
        row = checking.row(TABLES[said], found, started, where)
        at = row["at"]
        if at < last.get(said, at):
            raise InvalidInput(
                f"{where}: the clock goes backwards, from {last[said]:.6f} to {at:.6f}. "
                "Sort the rows of each kind by `at`, or take the recording again."
            )
        last[said] = at
        counts[said] += 1
        yield said, row
    if not ended:
        raise InvalidInput(_cut_off(called, counts))
    if not counts["request"]:
        raise InvalidInput(f"{called} holds no requests: nothing was asked while it was recorded.")


def _cut_off(called: str, counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    return f"{called} was cut off after {total} rows: its last line is missing. Export or copy it again."


def _objects(path: Path, called: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object. What breaks off in the middle ends here: `read` misses the last line."""
    try:
        with path.open("rb") as packed, gzip.open(packed) as file:
            for number, line in lines(file, packed, called, BOUNDS):
                try:
                    found = orjson.loads(line)
                except ValueError as error:
                    if not line.endswith(b"\n"):
                        return
                    raise InvalidInput(f"{called}:{number}: {error}") from None
                if not isinstance(found, dict):
                    raise InvalidInput(f"{called}:{number}: expected an object.")
                yield number, found
    except (EOFError, zlib.error):
        return
    except gzip.BadGzipFile:
        raise InvalidInput(f"{called} is no recording: it is not gzip.") from None
    except OSError as error:
        raise InvalidInput(f"{called} cannot be read: {error.strerror}.") from None


def _header(found: dict[str, Any], where: str) -> dict[str, Any]:
    version = found.get("serai_recording")
    if version is None:
        raise InvalidInput(f"{where}: this is no recording: its first line has no serai_recording.")
    if version != VERSION:
        raise InvalidInput(
            f"{where}: this recording is of version {str(version)[:40]}; this server reads {VERSION}. "
            "Export it with the server that made it, or upgrade this one."
        )
    checking.header(found, where)
    return found


def _check_end(found: Mapping[str, Any], counts: Mapping[str, int], where: str) -> None:
    said = found.get("rows")
    if not isinstance(said, dict) or {k: v for k, v in said.items() if v} != dict(counts):
        raise InvalidInput(
            f"{where}: the file says it has {str(said)[:200]} rows; it has {dict(counts)}. Copy it again."
        )
