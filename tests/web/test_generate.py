"""Texts as they are written: the transcript, its errors, and readers that stall or leave."""

from __future__ import annotations

import asyncio
import json
import re
import socket

import anyio
import pytest

from engine.errors import InferenceFailed, QueueFull, ResourceExhausted
from engine.requests import Delta, Generated, Grammar, Response, Usage
from tests.web.fakes import TIMING
from web import connection

pytestmark = pytest.mark.anyio

GENERATE = "/v1/generate/fake__writer"
BODY = {"prompt": "p", "stream": True}
STREAM = {"Accept": "text/event-stream", "X-Request-ID": "q"}


def done(output: Generated | Exception, text: str = "") -> Delta:
    usage = Usage(input_tokens=1, output_tokens=1)
    return Delta(text, 1, Response("fake/writer", (output,), usage, TIMING))


async def transcript(http) -> tuple[int, str]:
    async with http.post(GENERATE, json=BODY, headers=STREAM) as response:
        return response.status, await response.text()


def events(text: str) -> list[dict]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


async def test_the_transcript_is_the_one_that_the_client_reads(http):
    status, text = await transcript(http)

    assert status == 200
    assert re.sub(r'"ttft_ms":[0-9.]+', '"ttft_ms":3.0', text) == (
        'data: {"request_id":"q","seq":0,"text_delta":"he","done":false}\n\n'
        'data: {"request_id":"q","seq":1,"text_delta":"","done":true,"finish_reason":"stop",'
        '"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2},"cold":false,'
        '"timing":{"total_ms":1.0,"queue_ms":0.1,"tokenization_ms":0.2,"inference_ms":0.5,'
        '"postprocessing_ms":null,"load_ms":0.0},"ttft_ms":3.0}\n\n'
        "data: [DONE]\n\n"
    )


async def test_a_stream_says_that_it_is_one(http):
    async with http.post(GENERATE, json=BODY, headers=STREAM) as response:
        await response.read()

    assert response.headers["Content-Type"] == "text/event-stream"
    assert response.headers["Cache-Control"] == "no-cache"
    assert response.headers["X-SIE-Request-ID"] == "q"


async def test_text_that_comes_with_the_end_is_not_lost(http, engine):
    engine.deltas = [Delta("a", 1), done(Generated("ab", "length"), text="b")]

    _, text = await transcript(http)

    assert [e["text_delta"] for e in events(text)] == ["a", "b", ""]
    assert [e["seq"] for e in events(text)] == [0, 1, 2]
    assert events(text)[-1]["finish_reason"] == "length"


@pytest.mark.parametrize(
    "deltas", [[QueueFull("full").after(0.5)], [done(QueueFull("full").after(0.5))]], ids=["raised", "held"]
)
async def test_an_error_before_the_first_text_is_a_status(http, engine, deltas):
    engine.deltas = deltas
    async with http.post(GENERATE, json=BODY, headers=STREAM) as response:
        said = await response.json()

    assert (response.status, response.headers["Retry-After"]) == (503, "0.5")
    assert said["detail"]["code"] == "QUEUE_FULL"


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (InferenceFailed("broken"), {"code": "INFERENCE_ERROR", "message": "broken"}),
        (done(InferenceFailed("broken")), {"code": "INFERENCE_ERROR", "message": "broken"}),
        (
            ResourceExhausted("no room").after(0.2),
            {"code": "RESOURCE_EXHAUSTED", "message": "no room", "retry_after_s": 1},
        ),
        (
            RuntimeError("secret"),
            {
                "code": "INTERNAL_ERROR",
                "message": "Something inside the engine broke; the server's log has more.",
            },
        ),
    ],
)
async def test_an_error_after_the_first_text_is_the_last_event(http, engine, last, error):
    engine.deltas = [Delta("a", 1), last]

    status, text = await transcript(http)

    assert status == 200
    assert events(text)[-1] == {
        "request_id": "q",
        "seq": 1,
        "text_delta": "",
        "done": True,
        "finish_reason": "error",
        "error": error,
    }


async def test_a_stream_that_just_ends_is_an_error(http, engine):
    engine.deltas = [Delta("a", 1)]

    _, text = await transcript(http)

    assert events(text)[-1]["error"]["code"] == "INFERENCE_ERROR"


async def test_a_whole_text_is_answered_at_once_by_either_spelling_of_the_model(http, engine):
    for model in ("fake__writer", "fake/writer"):
        async with http.post(f"/v1/generate/{model}", json={"prompt": "hi"}) as response:
            said = await response.json()
            assert response.headers["X-SIE-Units-Input-Tokens"] == "3"

        assert said == {
            "model": "fake/writer",
            "text": "HI",
            "finish_reason": "stop",
            "usage": {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3},
        }


async def test_every_option_reaches_the_engine(http, engine):
    body = {
        "prompt": "p",
        "max_new_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": "x",
        "seed": -3,
        "frequency_penalty": 1,
        "presence_penalty": -1,
        "logit_bias": {"5": -100},
        "options": {"raw": True, "class": "background"},
        "routing_key": "r",
        "prompt_cache_key": "c",
        "safety_identifier": "s",
        "grammar": None,
    }
    async with http.post(GENERATE, json=body) as response:
        assert response.status == 200

    options = engine.requests[0].options
    assert (options.max_new_tokens, options.temperature, options.top_p) == (7, 0.5, 0.9)
    assert (options.stop, options.seed, options.raw) == (("x",), -3, True)
    assert (options.frequency_penalty, options.presence_penalty) == (1, -1)
    assert options.logit_bias == {5: -100}


async def test_a_field_that_is_not_known_is_refused_with_its_nearest(http, engine):
    async with http.post(GENERATE, json={"prompt": "p", "max_tokens": 5, "zzz": 1}) as response:
        said = (await response.json())["detail"]

    assert (response.status, engine.requests) == (400, [])
    assert said["message"] == (
        "Unsupported fields: max_tokens, zzz. Leave them out. Did you mean max_new_tokens for max_tokens?"
    )


async def test_a_reader_that_leaves_takes_the_generation_with_it(http, engine):
    engine.deltas = [Delta("a", 1)] * 1000
    engine.wait = 0.01
    async with http.post(GENERATE, json=BODY, headers=STREAM) as response:
        await response.content.readany()
    with anyio.fail_after(2):
        await engine.left.wait()


async def test_a_reader_that_stalls_is_cut(url, engine, monkeypatch, caplog):
    monkeypatch.setattr(connection, "STALL", 0.2)
    engine.deltas = [Delta("x" * 1_000_000, 1)] * 1000
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(BODY).encode()
    reader = socket.create_connection((host, int(port)))
    reader.setblocking(False)
    head = f"POST {GENERATE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"

    await asyncio.get_running_loop().sock_sendall(reader, head.encode() + body)
    with anyio.fail_after(10):
        await engine.left.wait()

    assert [r for r in caplog.records if r.levelname == "ERROR"] == []
    reader.close()


async def test_a_grammar_reaches_the_engine(engine, http):
    for grammar, expected in (
        ({"json_schema": {"type": "object"}, "strict": True}, Grammar("json_schema", '{"type": "object"}')),
        ({"regex": "[0-9]+"}, Grammar("regex", "[0-9]+")),
    ):
        async with http.post(
            "/v1/generate/fake/writer", json={"prompt": "p", "grammar": grammar}
        ) as response:
            assert response.status == 200
        assert engine.requests[-1].options.grammar == expected
