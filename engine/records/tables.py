"""The tables of `traffic.db`. Times are seconds since the epoch (`recorded_at`), durations seconds."""

from __future__ import annotations

from sqlite_utils import Database, Migrations
from sqlite_utils.db import Table

migrations = Migrations("traffic")

KEPT = ("requests", "batches", "residency", "samples", "acts", "losses")
"""What a recording consists of. A row that was brought in by a file has its recording's number; of what
happened here a recording is what has no number, from its start to its end."""


def table(db: Database, name: str) -> Table:
    found = db[name]
    assert isinstance(found, Table)
    return found


@migrations()
def first_tables(db: Database) -> None:
    _create_requests(db)
    _create_batches(db)
    _create_residency(db)


def _create_requests(db: Database) -> None:
    table(db, "requests").create(
        {
            "id": int,
            "recorded_at": float,
            "request": str,
            "model": str,
            "task": str,
            "service_class": int,
            "session": str,
            "outcome": str,
            "items": int,
            "cost": int,
            "input_tokens": int,
            "output_tokens": int,
            "prepare_seconds": float,
            "queue_seconds": float,
            "load_seconds": float,
            "run_seconds": float,
            "total_seconds": float,
            "cold": int,
            "device": str,
            "batches": str,
        },
        pk="id",
    ).create_index(["recorded_at"])


def _create_batches(db: Database) -> None:
    table(db, "batches").create(
        {
            "id": int,
            "recorded_at": float,
            "batch": int,
            "unit": str,
            "device": str,
            "slot": str,
            "jobs": int,
            "cost": int,
            "seconds": float,
            "predicted": float,
        },
        pk="id",
    ).create_index(["recorded_at"])


def _create_residency(db: Database) -> None:
    table(db, "residency").create(
        {
            "id": int,
            "recorded_at": float,
            "unit": str,
            "device": str,
            "event": str,
            "seconds": float,
            "weights_bytes": int,
            "reason": str,
        },
        pk="id",
    ).create_index(["recorded_at"])


@migrations()
def what_a_replay_needs(db: Database) -> None:
    """`costs` are those of a request's jobs, by comma; `deadline_seconds` is NULL where there was none."""
    requests = table(db, "requests")
    requests.add_column("principal", str)
    requests.add_column("unit", str)
    requests.add_column("costs", str)
    requests.add_column("kv_tokens", int)
    requests.add_column("deadline_seconds", float)
    requests.add_column("degraded_from", str)
    table(db, "residency").add_column("thrash", int)


@migrations()
def recordings(db: Database) -> None:
    """`recordings.ended_at` is NULL while one runs, and `closed` then too: stopped, interrupted, imported.

    `minutes` is what stays of requests that were deleted: sums by minute since the epoch.
    """
    requests, batches = table(db, "requests"), table(db, "batches")
    requests.add_column("bytes_in", int)
    requests.add_column("profile", str)
    for column in ("running", "tokens", "peak_bytes"):
        batches.add_column(column, int)
    table(db, "residency").add_column("from_host", int)
    _create_recordings(db)
    _create_samples(db)
    _create_acts(db)
    table(db, "losses").create({"id": int, "recorded_at": float, "rows": int}, pk="id")
    for name in KEPT:
        table(db, name).add_column("recording", int).create_index(["recording"])
    _create_minutes(db)


def _create_recordings(db: Database) -> None:
    table(db, "recordings").create(
        {
            "id": int,
            "name": str,
            "started_at": float,
            "ended_at": float,
            "closed": str,
            "who": str,
            "seed": int,
            "snapshot": str,
            "payloads": str,
        },
        pk="id",
    ).create_index(["name"], unique=True)


def _create_samples(db: Database) -> None:
    table(db, "samples").create(
        {
            "id": int,
            "recorded_at": float,
            "device": str,
            "budget_bytes": int,
            "lines": str,
            "units": str,
            "slots": int,
            "busy_slots": int,
            "busy_seconds": float,
            "utilisation": float,
            "waiting": int,
            "held_bytes": int,
        },
        pk="id",
    ).create_index(["recorded_at"])


def _create_acts(db: Database) -> None:
    table(db, "acts").create(
        {
            "id": int,
            "recorded_at": float,
            "who": str,
            "action": str,
            "target": str,
            "outcome": str,
            "reason": str,
            "after": str,
        },
        pk="id",
    ).create_index(["recorded_at"])


def _create_minutes(db: Database) -> None:
    table(db, "minutes").create(
        {
            "minute": int,
            "model": str,
            "service_class": int,
            "outcome": str,
            "requests": int,
            "items": int,
            "cost": int,
            "input_tokens": int,
            "output_tokens": int,
            "seconds": float,
            "longest": float,
        },
        pk=("minute", "model", "service_class", "outcome"),
    )
