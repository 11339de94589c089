"""A recording as replays and plans read it: columns of what was asked and what came of it, and a snapshot.

From a file that was exported, or from the database of a server, be it running or not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import InvalidInput, UnknownRecording
from engine.records import files
from replay.answers import Answers
from replay.trace import NO_SESSION, BadTrace, Kind, Trace

Columns = Mapping[str, NDArray[Any]]
"""(n,) each: numbers, or objects where it is text. `at` is in seconds from the recording's start."""

Row = Mapping[str, Any]

REQUEST: Mapping[str, Any] = {
    "at": 0.0,
    "request": "",
    "model": "",
    "unit": "",
    "task": "encode",
    "service_class": 1,
    "session": "",
    "principal": "",
    "outcome": "ok",
    "items": 1,
    "costs": "",
    "kv_tokens": 0,
    "input_tokens": 0,
    "output_tokens": 0,
    "deadline_seconds": math.inf,
    "prepare_seconds": 0.0,
    "queue_seconds": 0.0,
    "load_seconds": 0.0,
    "run_seconds": 0.0,
    "total_seconds": 0.0,
    "cold": 0,
    "device": "",
    "batches": "",
    "degraded_from": "",
    "bytes_in": 0,
}
"""Columns of requests, and what stands where a row has none."""

BATCH: Mapping[str, Any] = {
    "at": 0.0,
    "batch": 0,
    "unit": "",
    "device": "",
    "slot": "",
    "jobs": 0,
    "cost": 0,
    "seconds": 0.0,
    "predicted": 0.0,
    "running": 0,
    "tokens": 0,
    "peak_bytes": 0,
}


@dataclass(frozen=True, slots=True)
class Recording:
    name: str
    started: float
    """Seconds since the epoch; 0 where the recording does not say."""
    seconds: float
    """How long it ran."""
    seed: int
    closed: str
    """stopped, interrupted, imported, or running when it was read."""
    snapshot: Mapping[str, Any]
    """How the server was at its start, as `engine.snapshot` makes it; empty where that is not told."""
    requests: Columns
    """As `REQUEST`, in order of arrival."""
    batches: Columns
    """As `BATCH`, in order of their start."""
    changes: Sequence[Row]
    """Loads and evictions: `at` (their end), `unit`, `device`, `event`, `seconds`, `from_host`."""
    samples: Sequence[Row]
    """Each second and device: `lines` in bytes, `busy_slots`, `busy_seconds`, `utilisation`."""
    acts: Sequence[Row]
    """What operators did: `action`, `target`, `who`, `outcome`."""
    lost: int
    """Rows that could not be kept."""

    def __len__(self) -> int:
        return len(self.requests["at"])

    def trace(self) -> Trace:
        """What was asked, those that were refused too: without them a replay would ask for less."""
        found = self.requests
        shapes: dict[Kind, int] = {}
        kinds = np.fromiter((shapes.setdefault(kind, len(shapes)) for kind in self._kinds()), np.int64)
        # A request that another model answered was asked of the first.
        asked = np.where(found["degraded_from"] == "", found["model"], found["degraded_from"])
        sessions: dict[str, int] = {"": NO_SESSION}
        numbers = [sessions.setdefault(session, len(sessions) - 1) for session in found["session"].tolist()]
        made = Trace.of(
            self.name,
            found["at"],
            models=asked.tolist(),
            input_size=found["input_tokens"],
            output_size=found["output_tokens"],
            session=np.array(numbers, dtype=np.int64),
        )
        notes = [f"{self.lost} rows were lost while it was recorded"] if self.lost else []
        return made.told(
            service_class=found["service_class"].astype(np.int8),
            kind=kinds,
            kinds=tuple(shapes),
            started=self.started + float(found["at"][0]) if self.started else 0.0,
            notes=(*made.notes, *notes),
        )

    def _kinds(self) -> Iterator[Kind]:
        found = self.requests
        columns = ("task", "costs", "kv_tokens", "deadline_seconds", "principal", "degraded_from")
        for task, costs, kv, deadline, principal, degraded in zip(
            *(found[name].tolist() for name in columns), strict=True
        ):
            # The costs of one that another model answered are in that model's unit.
            each = () if degraded else tuple(int(cost) for cost in costs.split(",") if cost)
            yield Kind(task, each, kv, deadline, principal)

    def answers(self) -> Answers:
        """What came of each request, in order of arrival."""
        found = self.requests
        good = np.isin(found["outcome"], ("ok", "degraded"))
        return Answers.of(
            models=found["model"].tolist(),
            service_class=found["service_class"].astype(np.int8),
            arrived=found["at"] - found["at"][0],
            latency=np.where(good, found["total_seconds"], np.inf),
            prepare=found["prepare_seconds"],
            queue=found["queue_seconds"],
            load=found["load_seconds"],
            run=found["run_seconds"],
            outcomes=found["outcome"].tolist(),
            cold=found["cold"].astype(np.bool_),
        )


def read_file(path: Path) -> Recording:
    """One that was exported. Raises BadTrace for one that is broken."""
    try:
        return _collected(files.read(path), path.name.partition(".")[0])
    except InvalidInput as error:
        raise BadTrace(str(error)) from None


def read_database(database: Path, name: str) -> Recording:
    """From a server's `traffic.db`. Raises BadTrace when there is no such recording, or nothing in it."""
    if not database.is_file():
        raise BadTrace(f"{database} is not there: no server has recorded anything here.")
    try:
        with closing(files.connect(database)) as db:
            row = files.find(db, name)
            found = _collected(_with_header(files.header(row), files.rows(db, row)), name)
    except UnknownRecording as error:
        raise BadTrace(str(error)) from None
    if not len(found):
        raise BadTrace(f"The recording {name} holds no requests.")
    return found


def _with_header(
    header: dict[str, Any], rows: Iterable[tuple[str, dict[str, Any]]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "header", header
    yield from rows


def _collected(rows: Iterable[tuple[str, dict[str, Any]]], name: str) -> Recording:
    header: dict[str, Any] = {}
    requests: dict[str, list[Any]] = defaultdict(list)
    batches: dict[str, list[Any]] = defaultdict(list)
    few: dict[str, list[Row]] = defaultdict(list)
    for said, row in rows:
        match said:
            case "header":
                header = row
            case "request":
                _add(requests, row, REQUEST)
            case "batch":
                _add(batches, row, BATCH)
            case _:
                few[said].append(row)
    columns = _columns(requests, REQUEST)
    last = float(columns["at"].max()) if len(columns["at"]) else 0.0
    return Recording(
        name=name,
        started=float(header.get("started_at") or 0.0),
        seconds=float(last if header.get("seconds") is None else header["seconds"]),
        seed=int(header.get("seed") or 0),
        closed=str(header.get("closed", "imported")),
        snapshot=header.get("snapshot") or {},
        requests=columns,
        batches=_columns(batches, BATCH),
        changes=few["change"],
        samples=few["sample"],
        acts=few["act"],
        lost=sum(int(row["rows"]) for row in few["loss"]),
    )


def _add(columns: dict[str, list[Any]], row: Row, known: Mapping[str, Any]) -> None:
    for name, default in known.items():
        columns[name].append(row.get(name, default))


def _columns(found: Mapping[str, list[Any]], known: Mapping[str, Any]) -> Columns:
    """Raises BadTrace for a value of the wrong kind."""
    made: dict[str, NDArray[Any]] = {}
    for name, default in known.items():
        kind = {str: np.object_, int: np.int64, float: np.float64}[type(default)]
        try:
            made[name] = np.array(found.get(name, []), dtype=kind)
        except (TypeError, ValueError, OverflowError):
            raise BadTrace(f"The recording has a {name} that is no {type(default).__name__}.") from None
    return made
