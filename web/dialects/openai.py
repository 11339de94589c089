"""Errors as OpenAI tells them: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from engine import errors as raised
from engine.errors import EngineError
from web import errors

PATHS = (
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/embeddings",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
)

BELOW = ("/v1/files", "/v1/batches")

_CODES: Mapping[type[EngineError], str] = {
    raised.UnknownModel: "model_not_found",
    raised.ImageTooLarge: "image_too_large",
    raised.InputTooLong: "context_length_exceeded",
    raised.QueueFull: "rate_limit_exceeded",
    raised.RateLimited: "rate_limit_exceeded",
    raised.Unauthorized: "invalid_api_key",
}
"""Those that OpenAI's clients know; others keep ours, in lower case."""


def status(error: EngineError) -> int:
    """Ours, but for the full queue: its clients know 429 as what to come back from."""
    if isinstance(error, raised.QueueFull):
        return HTTPStatus.TOO_MANY_REQUESTS
    return errors.status(error)


def body(error: EngineError) -> dict[str, Any]:
    code = next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), errors.code(error).lower())
    param = error.details.get("param") or ("model" if isinstance(error, raised.UnknownModel) else None)
    said = {"message": error.message, "type": _type(status(error)), "param": param, "code": code}
    return {"error": said if error.item is None else {**said, "item": error.item}}


def told(error: EngineError, request_id: str) -> tuple[int, dict[str, Any]]:
    """Status and body."""
    return status(error), body(error)


def _type(status: int) -> str:
    kinds = {
        HTTPStatus.UNAUTHORIZED: "authentication_error",
        HTTPStatus.FORBIDDEN: "permission_error",
        HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    }
    other = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    return kinds.get(HTTPStatus(status), other)
