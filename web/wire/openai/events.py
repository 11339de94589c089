"""Server-sent events of OpenAI's streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from web.wire.pieces import json_bytes

DONE = b"data: [DONE]\n\n"


def event(fields: Mapping[str, Any]) -> bytes:
    return b"data: " + json_bytes(fields) + b"\n\n"


def named(fields: Mapping[str, Any]) -> bytes:
    """With its `type` as the event's name."""
    return f"event: {fields['type']}\n".encode() + event(fields)
