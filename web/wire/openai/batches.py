"""Batches as OpenAI's clients send and read them."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from engine import quantities
from engine.batches.kept import Batch, Counts, Spent, Status
from engine.errors import InvalidInput
from web.wire import endpoints
from web.wire.openai.files import ExpiresAfter

MOST_PAIRS, LONGEST_NAME, LONGEST_TEXT = 16, 64, 512
"""Of `metadata`, as at OpenAI."""


class BatchBody(Struct):
    input_file_id: str
    endpoint: str
    completion_window: str = "24h"
    metadata: dict[str, str] | None = None
    output_expires_after: ExpiresAfter | None = None


class RequestCounts(Struct):
    total: int
    completed: int
    failed: int


class InputDetails(Struct):
    cached_tokens: int


class OutputDetails(Struct):
    reasoning_tokens: int


class BatchUsage(Struct):
    """Of the lines that were answered."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class BatchError(Struct):
    code: str
    message: str
    line: int | None
    param: str | None


class BatchErrors(Struct):
    data: list[BatchError]
    object: Literal["list"] = "list"


class BatchObject(Struct):
    """Times are seconds since the epoch, null for what has not happened."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: Status
    errors: BatchErrors | None
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: BatchUsage | None
    """None until tokens were counted."""
    model: str | None
    """Where the endpoint names it; else each line has its own."""
    metadata: dict[str, str] | None
    object: Literal["batch"] = "batch"


class BatchList(Struct):
    data: list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


def told(batch: Batch, counts: Counts, spent: Spent) -> dict[str, Any]:
    """As `BatchObject`."""
    errors = [
        {"code": each.code, "message": each.message, "line": each.line, "param": each.param}
        for each in batch.complaints
    ]
    reached = [status for status in Status if status is not Status.VALIDATING]
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.window,
        "status": batch.status.value,
        "errors": {"object": "list", "data": errors} if errors else None,
        "output_file_id": batch.output_id if batch.output_id in batch.files else None,
        "error_file_id": batch.error_id if batch.error_id in batch.files else None,
        "created_at": int(batch.created_at),
        "expires_at": int(batch.expires_at),
        **{f"{status}_at": int(batch.at[status]) if status in batch.at else None for status in reached},
        "request_counts": {"total": counts.total, "completed": counts.completed, "failed": counts.failed},
        "usage": _usage(spent),
        "model": endpoints.of(batch.endpoint)[1] or None,
        "metadata": batch.metadata,
    }


def _usage(spent: Spent) -> dict[str, Any] | None:
    total = spent.input_tokens + spent.output_tokens
    if not total:
        return None
    return {
        "input_tokens": spent.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": spent.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": total,
    }


def window(said: str, longest: float) -> float:
    """Seconds. Raises InvalidInput for what is no duration, or longer than files are kept."""
    try:
        span = quantities.seconds(said)
    except ValueError as error:
        raise InvalidInput(f"completion_window: {error}.", param="completion_window") from None
    if not 0 < span <= longest:
        raise InvalidInput(
            f"completion_window is more than 0 and at most {longest / 86400:g}d (file_days).",
            param="completion_window",
        )
    return span


def metadata(said: dict[str, str] | None) -> dict[str, str] | None:
    """Raises InvalidInput for more of it than is kept."""
    pairs = said or {}
    if len(pairs) > MOST_PAIRS:
        raise InvalidInput(f"metadata has at most {MOST_PAIRS} pairs.", param="metadata")
    if any(len(name) > LONGEST_NAME or len(text) > LONGEST_TEXT for name, text in pairs.items()):
        raise InvalidInput(
            f"A name in metadata has at most {LONGEST_NAME} letters, its text {LONGEST_TEXT}.",
            param="metadata",
        )
    return said
