"""Messages of a conversation as the turns that chat templates take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine import toolcalls
from engine.errors import InvalidInput

ROLES = ("system", "user", "assistant", "tool")

Turn = dict[str, Any]
"""`role` and `content`, which is text, or a list of parts of type text and image for a model that sees;
`tool_calls` of an assistant; `name` and `tool_call_id` of a tool."""


def of(messages: Sequence[Mapping[str, Any]], *, sees: bool = False) -> list[Turn]:
    """`sees`: contents are lists of parts. Raises InvalidInput naming the message that is wrong."""
    return [_turn(at, message, sees) for at, message in enumerate(messages)]


def texts(turn: Turn) -> list[str]:
    """Of its content."""
    content = turn["content"]
    return [content] if isinstance(content, str) else [p["text"] for p in content if p["type"] == "text"]


def reworded(turn: Turn, change: Callable[[str], str]) -> Turn:
    """The same, with each text of its content changed."""
    content = turn["content"]
    if isinstance(content, str):
        return {**turn, "content": change(content)}
    return {
        **turn,
        "content": [{**p, "text": change(p["text"])} if p["type"] == "text" else p for p in content],
    }


def without_tools(turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """The same for a template that knows no tools: they are told in the first turn, calls are text."""
    plain = [{"role": turn["role"], "content": _with_calls(turn)} for turn in turns]
    if not tools:
        return plain
    told = toolcalls.instructions(tools)
    sees = any(not isinstance(turn["content"], str) for turn in plain)
    if plain and plain[0]["role"] == "system":
        first = {"role": "system", "content": _joined(plain[0]["content"], "\n\n", told)}
        return [first, *plain[1:]]
    return [{"role": "system", "content": _parts(told) if sees else told}, *plain]


def _with_calls(turn: Turn) -> Any:
    return _joined(turn["content"], "\n", toolcalls.written(turn.get("tool_calls", ())))


def _joined(content: Any, between: str, more: str) -> Any:
    """A content with more text at its end."""
    if not content or not more:
        return content or (_parts(more) if isinstance(content, list) else more)
    return f"{content}{between}{more}" if isinstance(content, str) else [*content, *_parts(between + more)]


def _parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}] if text else []


def _turn(at: int, message: Mapping[str, Any], sees: bool) -> Turn:
    if not isinstance(message, Mapping):
        raise InvalidInput(f"messages[{at}] must be a map with role and content")
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise InvalidInput(f"messages[{at}].role must be one of {', '.join(ROLES)}, not {role!r}")
    calls = message.get("tool_calls")
    if content is None and calls:
        content = ""
    kept = {key: message[key] for key in ("name", "tool_call_id", "tool_calls") if message.get(key)}
    return {"role": role, "content": _seen(at, content) if sees else _text(at, content), **kept}


def _seen(at: int, content: Any) -> list[dict[str, str]]:
    """Texts and places of images, in order."""
    if isinstance(content, str):
        return _parts(content)
    if not isinstance(content, Sequence):
        raise InvalidInput(f"messages[{at}].content must be text or a list of parts")
    return [_part(at, part) for part in content]


def _part(at: int, part: Any) -> dict[str, str]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "image":
        return {"type": "image"}
    if kind == "text" and isinstance(part["text"], str):
        return {"type": "text", "text": part["text"]}
    raise InvalidInput(f"messages[{at}].content may hold parts of type text and image only")


def _text(at: int, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InvalidInput(f"messages[{at}].content must be text or a list of text parts")
    found = [part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
    if len(found) != len(content) or not all(isinstance(text, str) for text in found):
        raise InvalidInput(f"messages[{at}].content may hold parts of type text only")
    return "".join(map(str, found))
