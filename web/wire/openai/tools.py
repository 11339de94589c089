"""Functions that an answer may call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

from engine import toolcalls
from engine.requests import Grammar
from web.wire import free
from web.wire.forms import Form
from web.wire.openai.complaints import wrong

MAX_TOOLS = 128
MAX_BYTES = 2**18
CHOICES = ("none", "auto", "required")


class Function(Struct):
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: Raw = free.UNSENT


class Tool(Struct):
    type: str
    function: Function | None = None


class Named(Struct):
    name: str


class Choice(Struct):
    type: str
    function: Named | None = None


@dataclass(frozen=True, slots=True)
class Offered:
    """The functions that the model is told of, and whether it must call one of `must`."""

    tools: tuple[Mapping[str, Any], ...] = ()
    must: tuple[Mapping[str, Any], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tool["function"]["name"] for tool in self.tools)

    def grammar(self, otherwise: Grammar | None) -> Grammar | None:
        """What the answer must be, when it would be `otherwise` without tools."""
        if self.must:
            return toolcalls.required(self.must)
        if self.tools and otherwise:
            return toolcalls.required(self.tools, otherwise.text)
        return otherwise


def offered(tools: Sequence[Tool] | None, choice: str | Choice | None, form: Form) -> Offered:
    """Raises InvalidInput for what is no function, or a choice of one that is not there."""
    if len(tools or ()) > MAX_TOOLS:
        raise wrong("tools", f"tools has {len(tools or ())} entries; at most {MAX_TOOLS} are taken.")
    found = tuple(_tool(tool, at, form) for at, tool in enumerate(tools or ()))
    if isinstance(choice, Choice):
        return Offered(found, (_named(choice, found),))
    if choice is not None and choice not in CHOICES:
        said = f"tool_choice is {choice[:100]!r}; it is one of {', '.join(CHOICES)}, or names a function."
        raise wrong("tool_choice", said)
    if choice == "required" and not found:
        raise wrong("tool_choice", "tool_choice is 'required', and there are no tools.")
    if choice == "none":
        return Offered()
    return Offered(found, found if choice == "required" else ())


def _tool(tool: Tool, at: int, form: Form) -> Mapping[str, Any]:
    if tool.type != "function" or tool.function is None:
        said = f"tools[{at}] must be of type 'function', with a function; no other kind is offered here."
        raise wrong("tools", said)
    function: dict[str, Any] = {"name": tool.function.name}
    if tool.function.description:
        function["description"] = tool.function.description
    where = f"tools[{at}].function.parameters"
    function["parameters"] = free.mapping(tool.function.parameters, form, where, MAX_BYTES) or {
        "type": "object",
        "properties": {},
    }
    return {"type": "function", "function": function}


def _named(choice: Choice, tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    name = choice.function.name if choice.function else ""
    for tool in tools:
        if tool["function"]["name"] == name:
            return tool
    raise wrong(
        "tool_choice", f"tool_choice names the function {name[:100]!r}, which is not among the tools."
    )
