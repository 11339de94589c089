"""Whatever a body holds, it is answered or refused in OpenAI's own form, and never breaks anything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import ClientSession

from engine.config import Settings
from tests.web.fakes import FakeEngine

pytestmark = pytest.mark.anyio

EMBED, CHAT, COMPLETE, RESPOND = (
    "/v1/embeddings",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
)
WRITER = "fake/writer"
USER = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def embed(given: object, **fields: object) -> tuple[str, dict[str, Any]]:
    return EMBED, {"model": "fake/encoder", "input": given, **fields}


def chat(**fields: object) -> tuple[str, dict[str, Any]]:
    return CHAT, {"model": WRITER, "messages": [USER], **fields}


def complete(prompt: object = "Once", **fields: object) -> tuple[str, dict[str, Any]]:
    return COMPLETE, {"model": WRITER, "prompt": prompt, **fields}


def respond(given: object = "Hi", **fields: object) -> tuple[str, dict[str, Any]]:
    return RESPOND, {"model": WRITER, "input": given, **fields}


def said(role: object, content: object) -> tuple[str, dict[str, Any]]:
    return chat(messages=[{"role": role, "content": content}])


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(Settings(max_items=5000, max_item_text_bytes=20_000))


GOOD = [
    embed(""),
    embed(" "),
    embed("\u0000"),
    embed(["a", ""]),
    embed([1, 2]),
    embed([[1], [2, 3]]),
    embed("a", user="u", encoding_format=None, unknown=[1]),
    embed(["a"] * 5000),
    chat(),
    chat(n=1, user="u", store=True, metadata={"a": "b"}, service_tier="flex", unknown=[[]]),
    chat(temperature=0, top_p=0, max_tokens=1, stop="x", seed=-1, logit_bias={"1": -100}),
    chat(temperature=2, max_completion_tokens=5, stop=["x"] * 16, presence_penalty=-2, frequency_penalty=2),
    chat(response_format={"type": "text"}),
    chat(response_format=SCHEMA),
    chat(response_format={"type": "json_object"}, tools=[TOOL]),
    chat(tools=[TOOL], tool_choice="required"),
    chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "weather"}}),
    chat(tools=[]),
    chat(logprobs=True, top_logprobs=20),
    said("developer", "Be brief."),
    said("user", ""),
    said("user", "\u0000"),
    said("user", [{"type": "text", "text": "a"}]),
    complete(""),
    complete(["a", "b"]),
    complete([1, 2]),
    complete(logprobs=5, echo=False, best_of=1, suffix=""),
    respond(""),
    respond([{"role": "user", "content": [{"type": "input_text", "text": "a"}]}], instructions="Be brief."),
    respond(text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}}),
    respond(tools=[], store=False, truncation="auto", include=[], reasoning={"effort": "low"}),
]


@pytest.mark.parametrize(("path", "body"), GOOD, ids=lambda value: json.dumps(value)[:60])
async def test_what_can_be_answered_is(http: ClientSession, path: str, body: dict[str, Any]):
    async with http.post(path, json=body) as response:
        assert response.status == 200, await response.text()


BAD = [
    # route and body, what the message names
    ((EMBED, []), "map"),
    ((EMBED, None), "map"),
    ((EMBED, {}), "model"),
    ((EMBED, {"model": "fake/encoder"}), "input"),
    ((EMBED, {"model": None, "input": "a"}), "model"),
    (embed(None), "input"),
    (embed(3), "input"),
    (embed({}), "input"),
    (embed(True), "input"),
    (embed([]), "input is empty"),
    (embed([None]), "input"),
    (embed([[]]), "input[0] is empty"),
    (embed([["a"]]), "input[0][0]"),
    (embed([[[1]]]), "input[0][0]"),
    (embed(["a", 1]), "input[1]"),
    (embed([1, "a"]), "input[1]"),
    (embed([-1]), "input[0]"),
    (embed([1.5]), "input[0]"),
    (embed([2**40]), "input[0]"),
    (embed(["a"] * 5001), "at most 5000"),
    (embed([[1]] * 5001), "5001 entries"),
    (embed([[[[]]]] * 2000), "6000 entries"),
    (embed("a" * 20_001), "20001 bytes"),
    (embed("a", dimensions=0), "dimensions"),
    (embed("a", dimensions=-1), "dimensions"),
    (embed("a", dimensions="4"), "dimensions"),
    (embed("a", encoding_format="hex"), "encoding_format"),
    (embed("a", input_type="poem"), "input_type"),
    (chat(messages=None), "messages"),
    (chat(messages=[]), "messages is empty"),
    (chat(messages="Hi"), "messages"),
    (chat(messages=[[]]), "messages[0]"),
    (chat(messages=[{}]), "role"),
    (said("boss", "Hi"), "messages[0].role"),
    (said(3, "Hi"), "messages[0].role"),
    (said("user", None), "messages[0].content"),
    (said("user", 3), "messages[0].content"),
    (said("user", [{"type": "file", "file": {"file_data": "x"}}]), "/v1/extract"),
    (said("user", [{"type": "image_url"}]), "messages[0].content[0] has no image_url"),
    (said("user", [{"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}]), "fetches nothing"),
    (said("user", [{"type": "image_url", "image_url": "data:image/png,abcd"}]), "base64"),
    (said("user", [{"type": "image_url", "image_url": "data:text/html;base64,abcd"}]), "base64"),
    (said("user", [{"type": "image_url", "image_url": "data:image/png;base64,a"}]), "is no base64"),
    (
        said("user", [{"type": "image_url", "image_url": "data:image/png;base64,abcd"}] * 17),
        "more than 16 images",
    ),
    (respond([{"role": "user", "content": [{"type": "input_image", "image_url": "file:///etc"}]}]), "'file'"),
    (said("user", [{"type": "text"}]), "content[0]"),
    (said("user", "a" * 20_001), "20001 bytes"),
    (chat(n=0), "n is 0"),
    (chat(n=2), "n is 2"),
    (chat(temperature=-1), "temperature"),
    (chat(temperature=3), "temperature"),
    (chat(temperature="hot"), "temperature"),
    (chat(top_p=1.1), "top_p"),
    (chat(max_tokens=0), "max_tokens"),
    (chat(max_tokens=-1), "max_tokens"),
    (chat(max_completion_tokens=0), "max_completion_tokens"),
    (chat(stop=["x"] * 100), "stop has 100"),
    (chat(stop=[""]), "stop"),
    (chat(stop=[3]), "stop"),
    (chat(seed=2**70), "seed"),
    (chat(presence_penalty=3), "presence_penalty"),
    (chat(logit_bias={"a": 1}), "logit_bias"),
    (chat(logit_bias={"1": 101}), "logit_bias"),
    (chat(top_logprobs=3), "top_logprobs"),
    (chat(logprobs=True, top_logprobs=21), "top_logprobs"),
    (chat(response_format={"type": "xml"}), "response_format"),
    (chat(response_format={"type": "json_schema"}), "json_schema"),
    (chat(response_format={"type": "json_schema", "json_schema": {"schema": []}}), "schema"),
    (chat(response_format={"type": "json_schema", "json_schema": {"schema": nested(40)}}), "nested"),
    (chat(response_format={"type": "json_schema", "json_schema": {"schema": {"a": "b" * 70_000}}}), "bytes"),
    (chat(tools=[{"type": "web_search"}]), "tools[0]"),
    (chat(tools=[{"type": "function", "function": {"name": "a b"}}]), "name"),
    (chat(tools=[TOOL] * 129), "tools has 129"),
    (chat(tools=[TOOL], tool_choice="maybe"), "tool_choice"),
    (chat(tool_choice="required"), "tool_choice"),
    (chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "rm"}}), "tool_choice"),
    (chat(functions=[{"name": "weather"}]), "functions"),
    (chat(modalities=["audio"]), "modalities"),
    (
        chat(
            messages=[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1"}}]}]
        ),
        "tool_calls[0].function.arguments",
    ),
    (complete(None), "prompt"),
    (complete([]), "prompt is empty"),
    (complete(["a"] * 129), "at most 128"),
    (complete(["a", "b"], stream=True), "several"),
    (complete(echo=True), "echo"),
    (complete(best_of=3), "best_of"),
    (complete(suffix="end"), "suffix"),
    (complete(logprobs=6), "logprobs"),
    (respond(None), "input"),
    (respond([]), "input is empty"),
    (respond(3), "input"),
    (respond([{"role": "boss", "content": "Hi"}]), "input[0].role"),
    (respond(previous_response_id="resp_1"), "previous_response_id"),
    (respond(background=True), "background"),
    (respond(tools=[{"type": "function", "name": "f"}]), "tools"),
    (respond(text={"format": {"type": "xml"}}), "text.format"),
    (respond(max_output_tokens=0), "max_output_tokens"),
]


@pytest.mark.parametrize(("call", "named"), BAD, ids=lambda value: json.dumps(value)[:60])
async def test_what_is_wrong_is_named_in_the_form_of_openai(http: ClientSession, call: Any, named: str):
    path, body = call

    async with http.post(path, json=body) as response:
        error = (await response.json())["error"]

    assert response.status == 400
    assert set(error) >= {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert named in error["message"]
    assert error["param"] is None or error["param"] in body


@pytest.mark.parametrize("path", [EMBED, CHAT, COMPLETE, RESPOND])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"model": "\xff", "input": "a", "prompt": "a", "messages": []}',
        b'{"model": "fake/writer", "input": "\\ud800", "prompt": "\\ud800", "messages": "\\ud800"}',
        b"[" * 100_000,
        b'{"temperature": NaN}',
    ],
)
async def test_what_is_no_json_is_refused(http: ClientSession, path: str, body: bytes):
    async with http.post(path, data=body, headers={"Content-Type": "application/json"}) as response:
        error = (await response.json())["error"]

    assert (response.status, error["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize("path", [EMBED, CHAT, COMPLETE, RESPOND])
async def test_msgpack_is_refused_with_what_to_send(http: ClientSession, path: str):
    async with http.post(path, data=b"\x80", headers={"Content-Type": "application/msgpack"}) as response:
        assert response.status == 400
        assert "application/json" in (await response.json())["error"]["message"]
