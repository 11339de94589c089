"""Calls of functions in a model's text: how they are asked for, written, and read. Pure.

The form is that of Hermes and Qwen, which most open models were trained on: one JSON object of `name`
and `arguments` between two tags. Llama 3 and Mistral answer with the bare object, or a list of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.requests import Grammar

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: str
    """A JSON object, as text."""


def instructions(tools: Sequence[Mapping[str, Any]]) -> str:
    """What a model is told of the functions when its own template has no place for them."""
    functions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return (
        f"You may call these functions:\n{functions}\n"
        f"To call one, answer with nothing but its name and its arguments as JSON between two tags:\n"
        f'{OPEN}\n{{"name": "...", "arguments": {{...}}}}\n{CLOSE}'
    )


def written(calls: Iterable[Mapping[str, Any]]) -> str:
    """Calls of an earlier answer, as that answer was."""
    return "\n".join(f"{OPEN}\n{json.dumps(each['function'], ensure_ascii=False)}\n{CLOSE}" for each in calls)


def required(tools: Iterable[Mapping[str, Any]], otherwise: str = "") -> Grammar:
    """An answer that is one call of one of them, its arguments as the function's schema says.

    Or, where `otherwise` is given, JSON by that schema.
    """
    functions = [tool["function"] for tool in tools]
    parameters = [function.get("parameters") or {"type": "object"} for function in functions]
    shared = {name: each for schema in parameters for name, each in (schema.get("$defs") or {}).items()}
    either = {
        "anyOf": [_schema(f["name"], schema) for f, schema in zip(functions, parameters, strict=True)],
        "$defs": shared,  # references are from the root
        "x-guidance": _SPACING,
    }
    tags = [json.dumps(f"{OPEN}\n"), json.dumps(f"\n{CLOSE}")]
    rules = [f"{tags[0]} call {tags[1]}", *(["other"] if otherwise else [])]
    text = f"start: {' | '.join(rules)}\ncall: %json {json.dumps(either)}\n"
    if otherwise:
        other = {**json.loads(otherwise), "x-guidance": _SPACING}
        text += f"other: %json {json.dumps(other)}\n"
    return Grammar("lark", text)


def _schema(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def read(text: str, names: Collection[str]) -> tuple[str, list[Call]]:
    """The text without its calls, and the calls; what is no call of a known function stays text."""
    if OPEN not in text:
        calls = _bare(text, names)
        return ("", calls) if calls else (text, [])
    said, *blocks = text.split(OPEN)
    calls = []
    for block in blocks:
        inside, closed, after = block.partition(CLOSE)
        call = _call(_json(inside), names)
        if call:
            calls.append(call)
            said += after
        else:
            said += OPEN + inside + closed + after
    return said.strip() if calls else text, calls


def _bare(text: str, names: Collection[str]) -> list[Call]:
    """A whole answer that is one call, or a list of calls."""
    found = _json(text) if text.strip()[:1] in ("{", "[") else None
    calls = [_call(each, names) for each in (found if isinstance(found, list) else [found])]
    known = [call for call in calls if call]
    return known if len(known) == len(calls) else []


def _call(value: Any, names: Collection[str]) -> Call | None:
    if not isinstance(value, Mapping):
        return None
    name = value.get("name")
    if not isinstance(name, str) or name not in names:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):  # some models write JSON in JSON
        arguments = _json(arguments)
    if not isinstance(arguments, Mapping):
        return None
    return Call(name, json.dumps(arguments, ensure_ascii=False))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


class Watch:
    """Lets a text through as it is written, up to where a call may begin; the rest is read at its end."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._held = ""
        self._said = ""

    def push(self, piece: str) -> str:
        """The text that is certainly no call."""
        self._held += piece
        if self._may_be_bare():
            return ""
        out = self._held[: _first(self._held)]
        self._held = self._held[len(out) :]
        self._said += out
        return out

    def finish(self) -> tuple[str, list[Call]]:
        """What of the held text is no call after all, and the calls."""
        return read(self._held, self._names)

    def _may_be_bare(self) -> bool:
        start = self._held.lstrip()[:1]
        return not self._said.strip() and start in ("{", "[")


def _first(text: str) -> int:
    """Where `OPEN` begins in the text, or could begin at its end."""
    found = text.find(OPEN)
    if found >= 0:
        return found
    for size in range(min(len(OPEN) - 1, len(text)), 0, -1):
        if OPEN.startswith(text[-size:]):
            return len(text) - size
    return len(text)
