"""What a field of a recording's file may be. A file comes from anybody: nothing of it is believed."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from typing import Any

from sqlite_utils import Database

from engine.errors import InvalidInput
from engine.records.tables import KEPT, migrations, table
from engine.requests import ServiceClass, Task

LATEST = 253_402_300_799.0
"""The last second of the year 9999."""
LONGEST_TEXT = 2**16
DEEPEST = 32
"""Levels that a snapshot has at most."""
AS_JSON = ("lines", "units")
"""Columns that hold JSON: in a file they are what they hold, numbers by name."""

_WHOLE = 2**63
_LISTS = {
    "costs": re.compile(r"(\d{1,18}(,\d{1,18})*)?"),
    "batches": re.compile(r"(\d{1,18}:\d{1,18}(,\d{1,18}:\d{1,18})*)?"),
}
_ONE_OF: Mapping[str, frozenset[object]] = {
    "task": frozenset(map(str, Task)),
    "service_class": frozenset(map(int, ServiceClass)),
}
_SNAPSHOT: Mapping[str, type] = {
    "settings": dict,
    "footprints": dict,
    "devices": list,
    "models": list,
    "pins": list,
    "residents": list,
    "curves": list,
    "workspaces": list,
    "loads": list,
}
_OWN = ("id", "recording", "recorded_at")
"""Columns that the database fills in."""


@functools.cache
def columns() -> Mapping[str, Mapping[str, type]]:
    """Of each table, those that a file may fill, and what kind of value each holds."""
    db = Database(memory=True)
    migrations.apply(db)
    kinds = {name: table(db, name).columns_dict for name in KEPT}
    db.close()
    return {name: {key: kind for key, kind in of.items() if key not in _OWN} for name, of in kinds.items()}


def header(found: Mapping[str, Any], where: str) -> None:
    """Raises InvalidInput for a field of the wrong kind."""
    seconds = found.get("seconds")
    if not _moment(found.get("started_at")):
        raise InvalidInput(f"{where}: started_at is a number of seconds from 0 to {LATEST:.0f}.")
    if seconds is not None and not (_moment(seconds) and _moment(found["started_at"] + seconds)):
        raise InvalidInput(f"{where}: seconds is a number, or null, and ends before the year 10000.")
    if "seed" in found and not _whole(found["seed"]):
        raise InvalidInput(f"{where}: seed is a whole number of 64 bits.")
    for name in ("name", "closed", "server"):
        if name in found and not (isinstance(found[name], str) and len(found[name]) <= LONGEST_TEXT):
            raise InvalidInput(f"{where}: {name} is text of at most {LONGEST_TEXT} characters.")
    _snapshot(found.get("snapshot", {}), where)


def _snapshot(found: object, where: str) -> None:
    if not isinstance(found, dict):
        raise InvalidInput(f"{where}: snapshot is an object.")
    for name, kind in _SNAPSHOT.items():
        value = found.get(name, kind())
        rows = value if isinstance(value, list) else ()
        if not isinstance(value, kind) or not all(isinstance(row, dict) for row in rows):
            what = "an object" if kind is dict else "a list of objects"
            raise InvalidInput(f"{where}: {name} of the snapshot is {what}.")
    if not _within(found, DEEPEST):
        raise InvalidInput(f"{where}: the snapshot has more than {DEEPEST} levels.")


def _within(found: object, levels: int) -> bool:
    if not isinstance(found, dict | list):
        return True
    inner = found.values() if isinstance(found, dict) else found
    return levels > 0 and all(_within(each, levels - 1) for each in inner)


def row(name: str, found: Mapping[str, Any], started: float, where: str) -> dict[str, Any]:
    """The row with its moment and the columns that the table `name` has. Raises InvalidInput."""
    at: Any = found.get("at")
    if not _moment(at) or not _moment(started + at):
        raise InvalidInput(f"{where}: a row needs `at`, in seconds from the start, before the year 10000.")
    made: dict[str, Any] = {"at": at}
    known = columns()[name]
    for column, value in found.items():
        if column in known and value is not None:
            made[column] = _value(column, known[column], value, where)
    return made


def _value(column: str, kind: type, value: object, where: str) -> object:
    if column in AS_JSON:
        return _numbers(column, value, where)
    if (choice := _ONE_OF.get(column)) is not None and (
        not isinstance(value, str | int) or value not in choice
    ):
        raise InvalidInput(f"{where}: {column} is one of {', '.join(sorted(map(str, choice)))}.")
    if kind is str:
        return _text(column, value, where)
    if kind is float:
        if not _number(value):
            raise InvalidInput(f"{where}: {column} is a finite number.")
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not _whole(value) and not isinstance(value, bool):
        raise InvalidInput(f"{where}: {column} is a whole number of 64 bits.")
    return value


def _text(column: str, value: object, where: str) -> str:
    form = _LISTS.get(column)
    if isinstance(value, str) and (form.fullmatch(value) if form else len(value) <= LONGEST_TEXT):
        return value
    what = "numbers with commas between" if form else f"text of at most {LONGEST_TEXT} characters"
    raise InvalidInput(f"{where}: {column} is {what}.")


def _numbers(column: str, value: object, where: str) -> object:
    if not isinstance(value, dict) or not all(_number(each) for each in value.values()):
        raise InvalidInput(f"{where}: {column} is an object with numbers in it.")
    return value


def _number(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_WHOLE <= value < _WHOLE


def _moment(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and 0 <= value <= LATEST


def moment(value: object) -> float:
    """Of a row that was stored, by whichever version: 0 for what is none."""
    return float(value) if isinstance(value, float | int) and _moment(value) else 0.0
