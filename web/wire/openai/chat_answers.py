"""Answers of `/v1/chat/completions`, whole and as they are written."""

from __future__ import annotations

from typing import Any

from engine.chosen import Chosen
from engine.errors import EngineError
from engine.requests import Delta, Generated, Response
from engine.toolcalls import Call, Watch, read
from web.dialects import openai
from web.wire import answers
from web.wire.openai import logprobs
from web.wire.openai.chat import Chat
from web.wire.openai.events import DONE, event


def whole(asked: Chat, response: Response, request_id: str, created: int) -> dict[str, Any]:
    """Raises the error that the response holds."""
    written = answers.generation(response)
    text, calls = read(written.text, asked.functions) if asked.functions else (written.text, [])
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text or (None if calls else ""),
        "refusal": None,
    }
    if calls:
        message["tool_calls"] = [_call(call, at, request_id) for at, call in enumerate(calls)]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": logprobs.of_chat(written.chosen) if _wants_logprobs(asked) else None,
        "finish_reason": _reason(written, bool(calls)),
    }
    return {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion",
        "created": created,
        "model": response.model,
        "choices": [choice],
        "usage": answers.generation_usage(response.usage),
        "system_fingerprint": None,
    }


class Transcript:
    """The chunks of one stream. Calls come whole, once it is certain that they are calls."""

    def __init__(self, asked: Chat, model: str, request_id: str, created: int) -> None:
        self._asked = asked
        self._request_id = request_id
        self._frame = {
            "id": f"chatcmpl-{request_id}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
            "system_fingerprint": None,
        }
        self._watch = Watch(asked.functions) if asked.functions else None
        self._chosen: list[Chosen] = []

    def begun(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def delta(self, delta: Delta) -> bytes:
        self._chosen += delta.chosen
        return self._text(self._watch.push(delta.text) if self._watch else delta.text)

    def done(self, response: Response) -> bytes:
        """Raises the error that the response holds."""
        written = answers.generation(response)
        text, calls = self._watch.finish() if self._watch else ("", [])
        said = self._text(text)
        for at, call in enumerate(calls):
            said += self._chunk({"tool_calls": [{"index": at, **_call(call, at, self._request_id)}]})
        said += self._chunk({}, _reason(written, bool(calls)))
        if self._asked.include_usage:
            usage = answers.generation_usage(response.usage)
            said += event({**self._frame, "choices": [], "usage": usage})
        return said

    def failed(self, error: EngineError) -> bytes:
        return event(openai.body(error))

    def ended(self) -> bytes:
        return DONE

    def _text(self, text: str) -> bytes:
        if not text:
            return b""
        chosen, self._chosen = self._chosen, []
        return self._chunk({"content": text}, None, chosen)

    def _chunk(
        self, delta: dict[str, Any], reason: str | None = None, chosen: list[Chosen] | None = None
    ) -> bytes:
        shown = logprobs.of_chat(chosen) if chosen and _wants_logprobs(self._asked) else None
        choice = {"index": 0, "delta": delta, "logprobs": shown, "finish_reason": reason}
        usage = {"usage": None} if self._asked.include_usage else {}
        return event({**self._frame, "choices": [choice], **usage})


def _wants_logprobs(asked: Chat) -> bool:
    return getattr(asked.options, "top_logprobs", None) is not None


def _reason(written: Generated, called: bool) -> str:
    return "tool_calls" if called and written.finish_reason == "stop" else written.finish_reason


def _call(call: Call, at: int, request_id: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{request_id}_{at}", "type": "function", "function": function}
