"""A text as it is written, as server-sent events. One transcript per stream."""

from __future__ import annotations

from typing import Any

from engine.errors import EngineError, ResourceExhausted
from engine.requests import Response
from web import errors
from web.wire import answers
from web.wire.pieces import json_bytes

DONE = b"data: [DONE]\n\n"


class Transcript:
    """Numbers the events of one stream. The last is `done` or `failed`, and then `DONE`."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._seq = 0

    def delta(self, text: str) -> bytes:
        return self._event({"text_delta": text, "done": False})

    def done(self, response: Response, ttft: float | None) -> bytes:
        """`ttft`: seconds to the first text, when there was any. Raises the error that the response holds.

        `cold` and `timing` are what other answers say in headers, which were sent before it was known.
        """
        end = {
            "text_delta": "",
            "done": True,
            "finish_reason": answers.generation(response).finish_reason,
            "usage": answers.generation_usage(response.usage),
            "cold": response.cold,
            "timing": {**answers.timing(response.timing), "load_ms": response.timing.load * 1000},
        }
        return self._event(end if ttft is None else {**end, "ttft_ms": ttft * 1000})

    def failed(self, error: EngineError) -> bytes:
        said: dict[str, Any] = {"code": errors.code(error), "message": error.message}
        if said["code"] == ResourceExhausted.code:
            # Clients take whole seconds from 1 to 60 here, and only with this code.
            said["retry_after_s"] = min(60, max(1, round(error.retry_after or 1)))
        return self._event({"text_delta": "", "done": True, "finish_reason": "error", "error": said})

    def _event(self, fields: dict[str, Any]) -> bytes:
        event = {"request_id": self._request_id, "seq": self._seq, **fields}
        self._seq += 1
        return b"data: " + json_bytes(event) + b"\n\n"
