"""Errors as Cohere tells them: `{"id", "message"}`, and 429 where we have no room."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from engine.errors import EngineError, QueueFull, ResourceExhausted
from web import errors


def told(error: EngineError, request_id: str) -> tuple[int, dict[str, Any]]:
    """An item's index is said in the message: this form has no place for it."""
    where = "" if error.item is None else f" (documents[{error.item}])"
    return _status(error), {"id": request_id, "message": error.message + where}


def _status(error: EngineError) -> int:
    if isinstance(error, QueueFull | ResourceExhausted):
        return HTTPStatus.TOO_MANY_REQUESTS
    return errors.status(error)
