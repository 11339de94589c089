"""Errors as text-embeddings-inference tells them: `{"error", "error_type"}`, and its statuses."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from engine import errors as raised
from engine.errors import EngineError
from web import errors

ASKED = ("/embed", "/embed_all", "/embed_sparse", "/rerank", "/predict", "/tokenize", "/decode")
"""What is asked of a model: below `/tei/{model}`, and at the root of those that the settings name."""
ROOT = (*ASKED, "/info")


class Empty(raised.InvalidInput):
    """There is nothing in `inputs` or `texts`; send at least one."""


class BatchTooLarge(raised.InvalidInput):
    """There are more inputs than one request may have."""


_TOLD: Mapping[type[EngineError], tuple[int, str]] = {
    Empty: (HTTPStatus.BAD_REQUEST, "Empty"),
    BatchTooLarge: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Validation"),
    raised.InputTooLong: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Validation"),
    raised.BodyTooLarge: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Validation"),
    raised.InvalidInput: (HTTPStatus.UNPROCESSABLE_ENTITY, "Validation"),
    raised.Stopped: (HTTPStatus.SERVICE_UNAVAILABLE, "Unhealthy"),
    raised.QueueFull: (HTTPStatus.TOO_MANY_REQUESTS, "Overloaded"),
    raised.StillLoading: (HTTPStatus.TOO_MANY_REQUESTS, "Overloaded"),
    raised.ResourceExhausted: (HTTPStatus.TOO_MANY_REQUESTS, "Overloaded"),
    raised.DeadlineExceeded: (HTTPStatus.REQUEST_TIMEOUT, "Overloaded"),
    raised.RateLimited: (HTTPStatus.TOO_MANY_REQUESTS, "Overloaded"),
    raised.Paused: (HTTPStatus.SERVICE_UNAVAILABLE, "Unhealthy"),
    raised.InferenceFailed: (HTTPStatus.FAILED_DEPENDENCY, "Backend"),
    raised.RunnerCrashed: (HTTPStatus.FAILED_DEPENDENCY, "Backend"),
    raised.LoadFailed: (HTTPStatus.FAILED_DEPENDENCY, "Backend"),
    raised.WeightsUnavailable: (HTTPStatus.FAILED_DEPENDENCY, "Backend"),
    raised.NoRoom: (HTTPStatus.FAILED_DEPENDENCY, "Backend"),
}


def told(error: EngineError, request_id: str) -> tuple[int, dict[str, Any]]:
    """What TEI has no word for keeps our status."""
    kind = next((kind for kind in type(error).__mro__ if kind in _TOLD), None)
    status = errors.status(error)
    other = "Backend" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "Validation"
    status, name = _TOLD[kind] if kind else (status, other)
    where = "" if error.item is None else f" (inputs[{error.item}])"
    return status, {"error": error.message + where, "error_type": name}
