"""Recordings in the database: stretches of it that have a name. Each function is one transaction's work."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

from sqlite_utils import Database

from engine.errors import InvalidInput, UnknownRecording
from engine.records.checking import moment
from engine.records.tables import KEPT, table
from engine.records.views import RecordingInfo

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")

IMPORTING = "importing"
"""How a recording is closed while its file is still being read."""

IMPORTED = ("imported", IMPORTING)

Found = Mapping[str, Any]
"""A row of `recordings`."""


def check_name(db: Database, name: str) -> None:
    """Raises InvalidInput for a name that cannot be one, or is taken."""
    if not NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:100]!r} is no name of a recording: use letters, digits, dots, dashes and underscores."
        )
    if table(db, "recordings").count_where("name = ?", [name]):
        raise InvalidInput(f"There is a recording {name} already; choose another name, or delete that one.")


def find(db: Database, name: str) -> Found:
    """Raises UnknownRecording that says which there are."""
    for row in table(db, "recordings").rows_where("name = ?", [name]):
        return row
    names = [row["name"] for row in table(db, "recordings").rows_where(order_by="id desc", limit=20)]
    known = f"there are {', '.join(names)}" if names else "there is none yet"
    raise UnknownRecording(f"There is no recording {name[:100]!r}; {known}.")


def running(db: Database) -> Found | None:
    return next(table(db, "recordings").rows_where("ended_at is null and closed is null"), None)


def start(db: Database, name: str, who: str, now: float, snapshot: Mapping[str, Any]) -> int:
    """Its number. Raises InvalidInput when one runs already."""
    check_name(db, name)
    if (other := running(db)) is not None:
        raise InvalidInput(f"The recording {other['name']} runs; stop it first.")
    row = {
        "name": name,
        "started_at": now,
        "who": who,
        "seed": secrets.randbelow(2**31),
        "snapshot": json.dumps(snapshot),
    }
    return _inserted(db, row)


def stop(
    db: Database,
    number: int,
    now: float,
    payloads: Mapping[str, Any] | None,
    learned: Mapping[str, Any],
) -> None:
    """`learned` stands in its snapshot from now on: at the start of a fresh server nothing was known. Models
    are those that were there at the start, and those that came since."""
    snapshot = json.loads(table(db, "recordings").get(number)["snapshot"])
    ended = {
        "ended_at": now,
        "closed": "stopped",
        "payloads": json.dumps(payloads) if payloads else None,
        "snapshot": json.dumps({**snapshot, **learned, "models": _both(snapshot, learned)}),
    }
    table(db, "recordings").update(number, ended)


def _both(snapshot: Mapping[str, Any], learned: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    first = snapshot.get("models", [])
    known = {model["id"] for model in first}
    return [*first, *(model for model in learned.get("models", []) if model["id"] not in known)]


def close_interrupted(db: Database) -> None:
    """What ran when the server died ends with its last row. An import that was cut short is taken back."""
    for row in list(table(db, "recordings").rows_where("closed = ?", [IMPORTING])):
        delete(db, row["name"])
    while (open_still := running(db)) is not None:
        last = [
            db.execute(
                f"select max(recorded_at) from {name} where recording is null and recorded_at >= ?",
                [open_still["started_at"]],
            ).fetchone()[0]
            for name in ("requests", "batches", "residency", "samples")
        ]
        ended = max((moment for moment in last if moment is not None), default=open_still["started_at"])
        table(db, "recordings").update(open_still["id"], {"ended_at": ended, "closed": "interrupted"})


def within(row: Found) -> tuple[str, list[float]]:
    """A condition for the rows of one recording, and its values."""
    if row["closed"] in IMPORTED:
        return "recording = ?", [row["id"]]
    if row["ended_at"] is None:
        return "recording is null and recorded_at >= ?", [row["started_at"]]
    return "recording is null and recorded_at between ? and ?", [row["started_at"], row["ended_at"]]


def infos(db: Database) -> list[RecordingInfo]:
    """The newest first."""
    return [info(db, row) for row in list(table(db, "recordings").rows_where(order_by="id desc"))]


def info(db: Database, row: Found) -> RecordingInfo:
    where, values = within(row)

    def counted(name: str, what: str = "count(*)", more: str = "") -> int:
        found = db.execute(f"select {what} from {name} where {where}{more}", values).fetchone()[0]
        return int(found or 0)

    payloads = json.loads(row["payloads"]) if row["payloads"] else {}
    return RecordingInfo(
        name=row["name"],
        started_at=moment(row["started_at"]),
        ended_at=None if row["ended_at"] is None else moment(row["ended_at"]),
        closed=row["closed"] or "running",
        who=row["who"] or "",
        seed=row["seed"] if isinstance(row["seed"], int) else 0,
        requests=counted("requests"),
        batches=counted("batches"),
        loads=counted("residency", more=" and event = 'loaded'"),
        models=counted("requests", "count(distinct model)"),
        lost=counted("losses", "total(rows)"),
        payloads=int(payloads.get("requests", 0)),
    )


def delete(db: Database, name: str) -> None:
    """Of what happened here only the name is forgotten; rotation takes the rows. Raises UnknownRecording."""
    row = find(db, name)
    if row["closed"] is None:
        raise InvalidInput(f"The recording {name} runs; stop it first.")
    if row["closed"] in IMPORTED:
        for kept in KEPT:
            table(db, kept).delete_where("recording = ?", [row["id"]])
    table(db, "recordings").delete(row["id"])


def trim(db: Database, name: str, seconds: float) -> None:
    """Keep only its last so many seconds."""
    row = find(db, name)
    if row["closed"] is None:
        raise InvalidInput(f"The recording {name} runs; stop it first.")
    begin = max(row["started_at"], row["ended_at"] - seconds)
    if row["closed"] in IMPORTED:
        for kept in KEPT:
            table(db, kept).delete_where("recording = ? and recorded_at < ?", [row["id"], begin])
    table(db, "recordings").update(row["id"], {"started_at": begin})


def insert(db: Database, name: str, header: Mapping[str, Any]) -> int:
    """A recording that comes from a file. Its number, for its rows; `imported` when all are there."""
    check_name(db, name)
    row = {
        "name": name,
        "started_at": header["started_at"],
        "ended_at": header["started_at"] + header["seconds"],
        "closed": IMPORTING,
        "who": "",
        "seed": header.get("seed", 0),
        "snapshot": json.dumps(header.get("snapshot", {})),
    }
    return _inserted(db, row)


def imported(db: Database, number: int) -> None:
    table(db, "recordings").update(number, {"closed": "imported"})


def _inserted(db: Database, row: Mapping[str, Any]) -> int:
    number = table(db, "recordings").insert(dict(row)).last_pk
    assert isinstance(number, int)
    return number
