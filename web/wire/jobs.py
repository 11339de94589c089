"""Jobs as the published native client reads them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from engine.batches.kept import PART, Batch, Counts, Status

CHUNK = PART
"""Items whose results come in one piece."""

_STATES = {
    Status.VALIDATING: "queued",
    Status.COMPLETED: "succeeded",
    Status.FAILED: "failed",
    Status.EXPIRED: "failed",
    Status.CANCELLED: "cancelled",
}


class JobChunk(Struct):
    """`state` is `failed` where an item failed, and the job's own where some were never run.

    `ref` is where a msgpack list of results is fetched, without a key, for an hour; then ask again."""

    seq: int
    items: int
    state: str
    ref: str | None


class JobOutput(Struct):
    chunks: list[JobChunk]


class JobObject(Struct):
    """Times are seconds since the epoch."""

    id: str
    operation: str
    model: str
    state: str
    outcome: str | None
    error_code: str | None
    total_items: int
    completed_items: int
    created_at: float
    finished_at: float | None
    output: JobOutput
    object: Literal["job"] = "job"


class JobList(Struct):
    """Without chunks: each job tells its own."""

    data: list[JobObject]
    has_more: bool
    object: Literal["list"] = "list"


class JobMade(Struct):
    id: str
    operation: str
    model: str
    state: str
    total_items: int
    chunks: int
    object: Literal["job"] = "job"


def made(batch: Batch) -> dict[str, Any]:
    """As `JobMade`."""
    assert batch.job is not None
    return {
        "id": batch.id,
        "object": "job",
        "operation": batch.job.operation,
        "model": batch.job.model,
        "state": _STATES.get(batch.status, "running"),
        "total_items": batch.counts.total,
        "chunks": pieces(batch.counts.total),
    }


def told(batch: Batch, counts: Counts, chunks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """As `JobObject`."""
    assert batch.job is not None
    state, outcome, code = _ended(batch, counts)
    return {
        "id": batch.id,
        "object": "job",
        "operation": batch.job.operation,
        "model": batch.job.model,
        "state": state,
        "outcome": outcome,
        "error_code": code,
        "total_items": counts.total,
        "completed_items": counts.completed + counts.failed,
        "created_at": batch.created_at,
        "finished_at": batch.at.get(batch.status) if batch.ended else None,
        "output": {"chunks": list(chunks)},
    }


def pieces(items: int) -> int:
    """In how many chunks so many items' results come."""
    return -(-items // CHUNK)


def chunk(batch: Batch, number: int, ref: str | None) -> dict[str, Any]:
    """As `JobChunk`, of a job that has ended. Its state stays when the files of results are deleted."""
    items = min(CHUNK, batch.counts.total - number * CHUNK)
    good, bad = batch.parts[number] if batch.parts else (0, 0)
    state = "failed" if bad else "succeeded" if good == items else _ended(batch, batch.counts)[0]
    return {"seq": number, "items": items, "state": state, "ref": ref}


def _ended(batch: Batch, counts: Counts) -> tuple[str, str | None, str | None]:
    """State, outcome and code. One item that failed makes the job's state `failed`, its others count."""
    state = _STATES.get(batch.status, "running")
    if batch.status is Status.COMPLETED and counts.failed:
        return "failed", "partial" if counts.completed else "failed", "ITEMS_FAILED"
    if batch.status is Status.EXPIRED:
        return state, "partial" if counts.completed else "failed", "EXPIRED"
    if batch.status is Status.FAILED:
        return state, "failed", batch.complaints[0].code.upper() if batch.complaints else None
    return state, state if batch.ended else None, None
