"""The child that compiles and tries a chat template before the server does: no thread can be ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from jinja2 import TemplateError

from engine.adapters.documents.worker import Handle, serve
from engine.adapters.generation.allowance import TooMuch
from engine.adapters.generation.templates import FAILING, Template
from engine.errors import InvalidInput

LONG = "A word and another. " * 5000


def prepare(setup: Mapping[str, Any]) -> Handle:
    def handle(request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            template = Template(request["template"])
        except (TemplateError, RecursionError) as error:
            raise InvalidInput(f"{error or type(error).__name__}") from None
        for messages, tools in _conversations():
            try:
                # what a template says of a turn that it does not take is for whoever sends one
                with contextlib.suppress(*FAILING):
                    _try(template, messages, tools, request["variables"])
            except _Refused as error:
                raise InvalidInput(str(error)) from None
        return {}

    return handle


class _Refused(Exception):
    """A probe took more than it may."""


def _try(template: Template, messages: Any, tools: Any, variables: Mapping[str, Any]) -> None:
    try:
        template.render(messages, tools, variables)
    except TooMuch as error:
        raise _Refused(str(error)) from None


def _conversations() -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """With and without each thing that a template may look for."""
    function = {"name": "f", "description": "Does.", "parameters": {"type": "object", "properties": {}}}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    user, system = {"role": "user", "content": "Hello."}, {"role": "system", "content": "Be brief."}
    said = {"role": "assistant", "content": "Well."}
    called = {"role": "assistant", "content": "", "tool_calls": [call]}
    answer = {"role": "tool", "content": "1", "tool_call_id": "c", "name": "f"}
    seen = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}
    tools: list[dict[str, Any]] = [{"type": "function", "function": function}]
    yield [user], []
    yield [system, user, said, user], []
    yield [system, user, called, answer, said, user], tools
    yield [seen], []
    yield [{"role": "user", "content": LONG}], []
    yield [user, said] * 50 + [user], []


if __name__ == "__main__":
    serve(prepare)
