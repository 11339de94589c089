"""JSON or msgpack: how a body is to be read, and how its answer is to be written."""

from __future__ import annotations

import re
from enum import StrEnum

_WEIGHT = re.compile(r"[01](\.[0-9]{0,3})?")


class Form(StrEnum):
    """A body's form; the value is its media type."""

    JSON = "application/json"
    MSGPACK = "application/msgpack"


def of_request(content_type: str | None) -> Form:
    """Msgpack when it says so; JSON otherwise, also when it says nothing."""
    said = (content_type or "").lower()
    packed = "application/msgpack" in said or "application/x-msgpack" in said
    return Form.MSGPACK if packed else Form.JSON


def of_answer(accept: str | None) -> Form:
    """JSON only for those who ask for it and not for msgpack too; `*/*` and nothing mean msgpack."""
    said = (accept or "").lower()
    return Form.JSON if "application/json" in said and "msgpack" not in said else Form.MSGPACK


def of_error(accept: str | None) -> Form:
    """Msgpack only for those who name it: an error is also for people to read."""
    return Form.MSGPACK if "msgpack" in (accept or "").lower() else Form.JSON


def prefers_page(accept: str | None) -> bool:
    """Whether a page is wanted rather than data. Whoever says nothing of pages is a program."""
    weights = {"text/html": 0.0, "application/json": 0.0}
    for part in (accept or "").lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        said = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        if kind in weights:
            weights[kind] = max(weights[kind], float(said) if _WEIGHT.fullmatch(said) else 0.0)
    return weights["text/html"] > weights["application/json"]
