from __future__ import annotations

import json

import pytest

from engine import toolcalls
from engine.toolcalls import Call, Watch

WEATHER = Call("weather", '{"city": "Paris"}')
BLOCK = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
NAMES = ("weather", "time")


@pytest.mark.parametrize(
    ("text", "said", "calls"),
    [
        (BLOCK, "", [WEATHER]),
        (f"Let me look.\n{BLOCK}", "Let me look.", [WEATHER]),
        (f"{BLOCK}\n{BLOCK}", "", [WEATHER, WEATHER]),
        (BLOCK.removesuffix("</tool_call>"), "", [WEATHER]),
        ('{"name": "weather", "parameters": {"city": "Paris"}}', "", [WEATHER]),
        ('[{"name": "weather", "arguments": {"city": "Paris"}}]', "", [WEATHER]),
        ('{"name": "weather", "arguments": "{\\"city\\": \\"Paris\\"}"}', "", [WEATHER]),
        ('<tool_call>{"name": "time"}</tool_call>', "", [Call("time", "{}")]),
        ("It is sunny.", "It is sunny.", []),
        ('{"name": "Bob"}', '{"name": "Bob"}', []),
        ('{"name": ["weather"]}', '{"name": ["weather"]}', []),
        ("<tool_call>nonsense</tool_call>", "<tool_call>nonsense</tool_call>", []),
        ('<tool_call>{"name": "rm"}</tool_call>', '<tool_call>{"name": "rm"}</tool_call>', []),
        ("[" * 100_000, "[" * 100_000, []),
        ("", "", []),
    ],
)
def test_calls_of_known_functions_are_read_and_all_else_stays_text(text, said, calls):
    assert toolcalls.read(text, NAMES) == (said, calls)


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "said", "calls"),
    [
        (f"Let me look. {BLOCK}", "Let me look. ", [WEATHER]),
        ("a < b and <tool box>", "a < b and <tool box>", []),
        ('  {"name": "weather", "arguments": {"city": "Paris"}}', "  ", [WEATHER]),
        ("{a set}", "{a set}", []),
        ("ends with <tool_", "ends with <tool_", []),
    ],
)
def test_a_stream_shows_text_at_once_and_calls_at_its_end(text, said, calls, size):
    watch = Watch(NAMES)

    shown = "".join(watch.push(text[at : at + size]) for at in range(0, len(text), size))
    rest, found = watch.finish()

    assert ((shown + rest).strip(), found) == (said.strip(), calls)


def test_text_before_a_call_is_not_held_back():
    watch = Watch(NAMES)

    assert watch.push("Let me look. <tool") == "Let me look. "
    assert watch.push("box") == "<toolbox"


def test_a_schema_may_refer_to_its_own_definitions():
    node = {"$ref": "#/$defs/node"}
    parameters = {"$defs": {"node": {"type": "object"}}, "type": "object", "properties": {"of": node}}
    tool = {"type": "function", "function": {"name": "walk", "parameters": parameters}}

    grammar = toolcalls.required([tool])

    (written,) = [line for line in grammar.text.splitlines() if line.startswith("call: %json ")]
    assert json.loads(written.removeprefix("call: %json "))["$defs"] == {"node": {"type": "object"}}
