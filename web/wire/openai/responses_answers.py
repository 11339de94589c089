"""Answers of `/v1/responses`, whole and as they are written."""

from __future__ import annotations

from typing import Any

from engine.errors import EngineError
from engine.requests import Delta, Response
from web.dialects import openai
from web.wire import answers
from web.wire.openai.events import named
from web.wire.openai.responses import Responding


def whole(asked: Responding, response: Response, request_id: str, created: int) -> dict[str, Any]:
    """Raises the error that the response holds."""
    written = answers.generation(response)
    cut = written.finish_reason == "length"
    status = "incomplete" if cut else "completed"
    used = response.usage
    return {
        **_begun(asked, response.model, request_id, created),
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": [_message(request_id, written.text, status)],
        "usage": {
            "input_tokens": used.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": used.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": used.input_tokens + used.output_tokens,
        },
    }


class Transcript:
    """Numbers the events of one stream. The last is `response.completed`, `.incomplete` or `.failed`."""

    def __init__(self, asked: Responding, model: str, request_id: str, created: int) -> None:
        self._asked = asked
        self._request_id = request_id
        self._created = created
        self._model = model
        self._number = 0
        self._place = {"item_id": f"msg_{request_id}", "output_index": 0}

    def begun(self) -> bytes:
        response = _begun(self._asked, self._model, self._request_id, self._created)
        item = {**_message(self._request_id, "", "in_progress"), "content": []}
        return (
            self._event("response.created", response=response)
            + self._event("response.in_progress", response=response)
            + self._event("response.output_item.added", output_index=0, item=item)
            + self._event("response.content_part.added", **self._place, content_index=0, part=_part(""))
        )

    def delta(self, delta: Delta) -> bytes:
        if not delta.text:
            return b""
        piece = {"content_index": 0, "delta": delta.text, "logprobs": []}
        return self._event("response.output_text.delta", **self._place, **piece)

    def done(self, response: Response) -> bytes:
        """Raises the error that the response holds."""
        said = whole(self._asked, response, self._request_id, self._created)
        (item,), status = said["output"], said["status"]
        (part,) = item["content"]
        text = {"content_index": 0, "text": part["text"], "logprobs": []}
        return (
            self._event("response.output_text.done", **self._place, **text)
            + self._event("response.content_part.done", **self._place, content_index=0, part=part)
            + self._event("response.output_item.done", output_index=0, item=item)
            + self._event(f"response.{status}", response=said)
        )

    def failed(self, error: EngineError) -> bytes:
        told = openai.body(error)["error"]
        response = _begun(self._asked, self._model, self._request_id, self._created)
        failed = {
            **response,
            "status": "failed",
            "error": {"code": "server_error", "message": told["message"]},
        }
        return self._event("response.failed", response=failed)

    def ended(self) -> bytes:
        return b""

    def _event(self, kind: str, **fields: Any) -> bytes:
        numbered = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return named(numbered)


def _begun(asked: Responding, model: str, request_id: str, created: int) -> dict[str, Any]:
    return {
        "id": f"resp_{request_id}",
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": asked.instructions,
        "max_output_tokens": asked.sampled.max_new_tokens,
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": asked.sampled.temperature,
        "text": {"format": {"type": asked.text_format}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": asked.sampled.top_p,
        "truncation": "disabled",
        "usage": None,
        "metadata": {},
    }


def _message(request_id: str, text: str, status: str) -> dict[str, Any]:
    return {
        "id": f"msg_{request_id}",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [_part(text)],
    }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
