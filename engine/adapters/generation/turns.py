"""Messages of a conversation as the turns that chat templates take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine import toolcalls
from engine.errors import InvalidInput

ROLES = ("system", "user", "assistant", "tool")

Turn = dict[str, Any]
"""`role` and `content`, which is text; `tool_calls` of an assistant; `name` and `tool_call_id` of a tool."""


def of(messages: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """Raises InvalidInput naming the message that is wrong."""
    return [_turn(at, message) for at, message in enumerate(messages)]


def without_tools(turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """The same for a template that knows no tools: they are told in the first turn, calls are text."""
    plain = [{"role": turn["role"], "content": _with_calls(turn)} for turn in turns]
    if not tools:
        return plain
    told = toolcalls.instructions(tools)
    if plain and plain[0]["role"] == "system":
        first = {"role": "system", "content": f"{plain[0]['content']}\n\n{told}"}
        return [first, *plain[1:]]
    return [{"role": "system", "content": told}, *plain]


def _with_calls(turn: Turn) -> str:
    parts = [turn["content"], toolcalls.written(turn.get("tool_calls", ()))]
    return "\n".join(part for part in parts if part)


def _turn(at: int, message: Mapping[str, Any]) -> Turn:
    if not isinstance(message, Mapping):
        raise InvalidInput(f"messages[{at}] must be a map with role and content")
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise InvalidInput(f"messages[{at}].role must be one of {', '.join(ROLES)}, not {role!r}")
    calls = message.get("tool_calls")
    if content is None and calls:
        content = ""
    kept = {key: message[key] for key in ("name", "tool_call_id", "tool_calls") if message.get(key)}
    return {"role": role, "content": _text(at, content), **kept}


def _text(at: int, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InvalidInput(f"messages[{at}].content must be text or a list of text parts")
    texts = [part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
    if len(texts) != len(content) or not all(isinstance(text, str) for text in texts):
        raise InvalidInput(f"messages[{at}].content may hold parts of type text only")
    return "".join(map(str, texts))
