"""Images in conversations, from what clients send to what the engine is asked."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from aiohttp import ClientSession

from engine.requests import GenerateOptions, Item, Media
from tests.web.fakes import FakeEngine
from web.wire import bodies
from web.wire.openai import pictures

pytestmark = pytest.mark.anyio

PNG, JPEG = b"a picture", b"another one"


def url(data: bytes, kind: str) -> str:
    return f"data:{kind};base64,{b64encode(data).decode()}"


CHAT_PARTS = [
    {"type": "text", "text": "Is this"},
    {"type": "image_url", "image_url": {"url": url(PNG, "image/png"), "detail": "low"}},
    {"type": "text", "text": "what is in"},
    {"type": "image_url", "image_url": {"url": url(JPEG, "image/jpeg")}},
]
RESPONSE_PARTS = [
    {"type": "input_text", "text": "Is this"},
    {"type": "input_image", "image_url": url(PNG, "image/png"), "detail": "auto"},
    {"type": "input_text", "text": "what is in"},
    {"type": "input_image", "image_url": url(JPEG, "image/jpeg")},
]
TOLD = {"role": "user", "content": "Look."}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [TOLD, {"role": "user", "content": CHAT_PARTS}]}),
        ("/v1/responses", {"input": [TOLD, {"role": "user", "content": RESPONSE_PARTS}]}),
    ],
)
async def test_images_go_beside_a_conversation_that_tells_their_places(
    http: ClientSession, engine: FakeEngine, path: str, body: dict[str, Any]
):
    async with http.post(path, json={"model": "fake/writer", **body}) as response:
        assert response.status == 200, await response.text()

    (asked,) = engine.requests
    assert asked.items == (Item(images=(Media(PNG, "image/png"), Media(JPEG, "image/jpeg"))),)
    assert isinstance(asked.options, GenerateOptions)
    assert asked.options.messages[1]["content"] == [
        {"type": "text", "text": "Is this"},
        {"type": "image"},
        {"type": "text", "text": "what is in"},
        {"type": "image"},
    ]


def test_the_scheme_of_a_data_url_may_be_written_large():
    assert pictures.read("DATA:IMAGE/PNG;BASE64,AAAA", "it", "x") == Media(b"\0\0\0", "image/png")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [CHAT_PARTS[1]]}]}),
        ("/v1/responses", {"input": [{"role": "user", "content": [RESPONSE_PARTS[1]]}]}),
    ],
)
async def test_an_image_that_is_too_large_is_told_as_such_with_both_sizes(
    http: ClientSession, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
):
    monkeypatch.setattr(bodies, "MAX_IMAGE_BYTES", 4)
    async with http.post(path, json={"model": "fake/writer", **body}) as response:
        told = (await response.json())["error"]

    assert (response.status, told["code"], engine.requests) == (400, "image_too_large", [])
    assert f"{len(PNG)} bytes; at most 4" in told["message"]
