"""What OpenAI's clients send and read, on an engine that remembers what it was asked."""

from __future__ import annotations

import base64
import json
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from aiohttp import ClientSession

from engine import errors
from engine.chosen import Chance, Chosen
from engine.entry import Lora
from engine.requests import (
    Delta,
    EncodeOptions,
    Generated,
    GenerateOptions,
    Grammar,
    Item,
    OutputType,
    Request,
    Response,
    ServiceClass,
    Usage,
)
from tests.web.fakes import TIMING, FakeEngine, vector
from web.intake import LARGE_BYTES

pytestmark = pytest.mark.anyio

WRITER = "fake/writer"
USER = {"role": "user", "content": "Hi"}
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
TOOL = {"type": "function", "function": WEATHER}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'


async def post(http: ClientSession, path: str, body: dict[str, Any]) -> dict[str, Any]:
    async with http.post(path, json=body) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def stream(http: ClientSession, path: str, **body: Any) -> list[dict[str, Any]]:
    """The data of all events; `[DONE]` must come last, where the route has one."""
    async with http.post(path, json={"model": WRITER, "stream": True, **body}) as response:
        assert response.content_type == "text/event-stream"
        blocks = (await response.text()).strip().split("\n\n")
    lines = [line for block in blocks for line in block.split("\n") if line.startswith("data: ")]
    if path != "/v1/responses":
        assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def writes(text: str, reason: str = "stop", chosen: tuple[Chosen, ...] = ()) -> Any:
    def answer(request: Request) -> Response:
        outputs = tuple(Generated(text, reason, (1, 2), chosen) for _ in request.items)
        return Response(request.model, outputs, Usage(input_tokens=3, output_tokens=2), TIMING)

    return answer


def asked(engine: FakeEngine) -> GenerateOptions:
    options = engine.requests[-1].options
    assert isinstance(options, GenerateOptions)
    return options


async def test_embeddings_are_numbers_or_base64_of_little_endian_floats(http):
    body = {"model": "encoder", "input": ["a", "b"]}
    plain = await post(http, "/v1/embeddings", body)
    packed = await post(http, "/v1/embeddings", {**body, "encoding_format": "base64"})

    assert (plain["object"], plain["model"]) == ("list", "fake/encoder")
    assert plain["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
    assert [entry["index"] for entry in plain["data"]] == [0, 1]
    for text, number, letters in zip("ab", plain["data"], packed["data"], strict=True):
        assert np.allclose(number["embedding"], vector(text))
        assert np.array_equal(np.frombuffer(base64.b64decode(letters["embedding"]), "<f4"), vector(text))


async def test_what_an_embedding_is_asked_with_reaches_the_engine(engine, http):
    body = {"model": "fake/encoder", "input": [[1, 2], [3]], "dimensions": 64, "input_type": "query"}
    await post(http, "/v1/embeddings", body)
    await post(http, "/v1/embeddings", {"model": "fake/encoder", "input": [7, 8, 9]})

    first, second = engine.requests
    assert first.items == (Item(tokens=(1, 2)), Item(tokens=(3,)))
    assert second.items == (Item(tokens=(7, 8, 9)),)
    wanted = EncodeOptions(output_types=(OutputType.DENSE,), dimensions=64, is_query=True)
    assert first.options == wanted


async def test_a_task_of_jinas_is_an_adapter_where_the_model_has_it_and_a_role(engine, http):
    entry = engine.catalog.models["fake/encoder"]
    lora = Lora.model_validate({"sources": [{"directory": "/nowhere"}]})
    engine.catalog.models["fake/encoder"] = entry.model_copy(update={"loras": {"text-matching": lora}})
    for task in ("text-matching", "retrieval.query", "retrieval.passage"):
        await post(http, "/v1/embeddings", {"model": "fake/encoder", "input": "a", "task": task})

    asked = [(request.options.lora, request.options.is_query) for request in engine.requests]
    assert asked == [("text-matching", False), (None, True), (None, False)]


async def test_a_chat_reaches_the_engine_as_a_conversation(engine, http):
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "How is "}, {"type": "text", "text": "Paris?"}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Sunny"},
    ]
    body = {
        "model": WRITER,
        "messages": messages,
        "stop": "x",
        "seed": 5,
        "top_p": 0.5,
        "max_completion_tokens": 7,
        "max_tokens": 9,
        "logprobs": True,
        "top_logprobs": 2,
        "logit_bias": {"3": -1},
        "service_tier": "flex",
    }
    await post(http, "/v1/chat/completions", body)

    options = asked(engine)
    known = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}}
    assert options.messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How is Paris?"},
        {"role": "assistant", "content": "", "tool_calls": [known]},
        {"role": "tool", "content": "Sunny", "tool_call_id": "c1"},
    )
    assert (options.stop, options.seed, options.top_p, options.max_new_tokens) == (("x",), 5, 0.5, 7)
    assert (options.temperature, options.top_logprobs, options.logit_bias) == (1.0, 2, {3: -1.0})
    assert engine.requests[-1].service_class is ServiceClass.BACKGROUND
    assert options.held_bytes >= 4 * len("Be brief.How is Paris?ParisSunny")


async def test_a_format_is_a_grammar(engine, http):
    chat = {"model": WRITER, "messages": [USER]}
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    named = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    await post(http, "/v1/chat/completions", {**chat, "response_format": named})
    assert asked(engine).grammar == Grammar("json_schema", json.dumps(schema))

    await post(http, "/v1/chat/completions", {**chat, "response_format": {"type": "json_object"}})
    assert asked(engine).grammar == Grammar("json_schema", '{"type": "object"}')

    text = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    await post(http, "/v1/responses", {"model": WRITER, "input": "Hi", "text": text})
    assert asked(engine).grammar == Grammar("json_schema", json.dumps(schema))


async def test_a_tool_may_be_offered_required_or_kept_back(engine, http):
    chat = {"model": WRITER, "messages": [USER], "tools": [TOOL]}
    await post(http, "/v1/chat/completions", chat)
    assert (asked(engine).tools, asked(engine).grammar) == ((TOOL,), None)

    await post(http, "/v1/chat/completions", {**chat, "tool_choice": "required"})
    assert asked(engine).grammar.text.startswith('start: "<tool_call>\\n" call "\\n</tool_call>"\n')

    await post(http, "/v1/chat/completions", {**chat, "tool_choice": "none"})
    assert (asked(engine).tools, asked(engine).grammar) == ((), None)


async def test_calls_are_read_from_the_answer(engine, http):
    engine.answer = writes(CALL)
    body = {"model": WRITER, "messages": [USER], "tools": [TOOL]}
    with_tools = await post(http, "/v1/chat/completions", body)
    without = await post(http, "/v1/chat/completions", {"model": WRITER, "messages": [USER]})

    (choice,) = with_tools["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert (call["type"], call["function"]) == (
        "function",
        {"name": "weather", "arguments": '{"city": "Paris"}'},
    )
    assert without["choices"][0]["message"]["content"] == CALL
    assert without["choices"][0]["finish_reason"] == "stop"


async def test_calls_are_streamed_whole_after_the_text_before_them(engine, http):
    done = writes(f"So: {CALL}")(Request("r", "generate", WRITER, (Item(),), GenerateOptions()))  # type: ignore[arg-type]
    engine.deltas = [Delta(piece, 1) for piece in ("So: ", CALL[:9], CALL[9:])] + [Delta("", 0, done)]
    chunks = await stream(http, "/v1/chat/completions", messages=[USER], tools=[TOOL])

    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert [delta.get("content") for delta in deltas] == ["", "So: ", None, None]
    assert deltas[2]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Paris"}'}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_stream_of_a_chat_ends_with_its_reason_and_usage(http):
    wanted = {"include_usage": True}
    chunks = await stream(http, "/v1/chat/completions", messages=[USER], stream_options=wanted)

    first, text, last, usage = chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text["choices"][0]["delta"] == {"content": "he"}
    assert last["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert [chunk["usage"] for chunk in (first, text, last)] == [None] * 3
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 2)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_chances_are_told_as_openai_tells_them(engine, http):
    best = (Chance(b" Paris", -0.1), Chance("é".encode()[:1], -2.0))
    engine.answer = writes(" Paris.", chosen=(Chosen(best[0], best), Chosen(Chance(b".", -0.5))))
    chat = await post(
        http,
        "/v1/chat/completions",
        {"model": WRITER, "messages": [USER], "logprobs": True, "top_logprobs": 2},
    )
    text = await post(http, "/v1/completions", {"model": WRITER, "prompt": "a", "logprobs": 2})

    first, second = chat["choices"][0]["logprobs"]["content"]
    assert (first["token"], first["logprob"], first["bytes"]) == (" Paris", -0.1, list(b" Paris"))
    assert [each["token"] for each in first["top_logprobs"]] == [" Paris", "bytes:\\xc3"]
    assert (second["token"], second["top_logprobs"]) == (".", [])
    assert text["choices"][0]["logprobs"] == {
        "tokens": [" Paris", "."],
        "token_logprobs": [-0.1, -0.5],
        "top_logprobs": [{" Paris": -0.1, "bytes:\\xc3": -2.0}, {}],
        "text_offset": [0, 6],
    }


async def test_chances_are_streamed_with_their_text(engine, http):
    done = writes(" Paris.")(Request("r", "generate", WRITER, (Item(),), GenerateOptions()))  # type: ignore[arg-type]
    chosen = [(Chosen(Chance(b" Paris", -0.1)),), (Chosen(Chance(b".", -0.5)),)]
    engine.deltas = [
        Delta("", 1),
        Delta(" Paris", 1, chosen=chosen[0]),
        Delta(".", 1, chosen=chosen[1]),
        Delta("", 0, done),
    ]
    chat = await stream(http, "/v1/chat/completions", messages=[USER], logprobs=True)
    text = await stream(http, "/v1/completions", prompt="a", logprobs=0)

    told = [chunk["choices"][0]["logprobs"] for chunk in chat]
    assert [each and [token["token"] for token in each["content"]] for each in told] == [
        None,
        [" Paris"],
        ["."],
        None,
    ]
    assert [c["choices"][0]["logprobs"]["text_offset"] for c in text[:2]] == [[0], [6]]


async def test_a_completion_is_of_the_prompt_as_it_is(engine, http):
    made = await post(http, "/v1/completions", {"model": WRITER, "prompt": ["a", "b"]})
    streamed = await stream(http, "/v1/completions", prompt=[5, 6])

    assert [choice["text"] for choice in made["choices"]] == ["A", "B"]
    assert [choice["index"] for choice in made["choices"]] == [0, 1]
    assert [chunk["choices"][0]["text"] for chunk in streamed] == ["he", ""]
    assert streamed[-1]["choices"][0]["finish_reason"] == "stop"
    first, second = engine.requests
    assert (first.options.raw, first.options.max_new_tokens) == (True, 16)
    assert second.items == (Item(tokens=(5, 6)),)


async def test_a_response_holds_one_message(engine, http):
    engine.answer = writes("he", "length")
    body = {"model": WRITER, "input": "Hi", "instructions": "Be brief.", "max_output_tokens": 2}
    made = await post(http, "/v1/responses", body)

    assert (made["object"], made["status"]) == ("response", "incomplete")
    assert made["incomplete_details"] == {"reason": "max_output_tokens"}
    assert made["output"][0]["content"][0]["text"] == "he"
    assert made["usage"]["total_tokens"] == 5
    assert asked(engine).messages == ({"role": "system", "content": "Be brief."}, USER)


async def test_the_events_of_a_response_are_numbered_and_end(http):
    events = await stream(http, "/v1/responses", input="Hi")

    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "he"


@pytest.mark.parametrize(
    ("failure", "status", "kind", "code"),
    [
        (errors.QueueFull("full").after(0.25), 429, "rate_limit_error", "rate_limit_exceeded"),
        (errors.RateLimited().after(2.0), 429, "rate_limit_error", "rate_limit_exceeded"),
        (errors.Unauthorized(), 401, "authentication_error", "invalid_api_key"),
        (errors.Forbidden(), 403, "permission_error", "forbidden"),
        (errors.Stopped(), 503, "server_error", "queue_full"),
        (errors.StillLoading().after(1.0), 503, "server_error", "model_loading"),
        (errors.InputTooLong("long"), 400, "invalid_request_error", "context_length_exceeded"),
        (errors.InferenceFailed(), 500, "server_error", "inference_error"),
        (errors.DeadlineExceeded(), 408, "invalid_request_error", "deadline_exceeded"),
        (RuntimeError("secret"), 500, "server_error", "internal_error"),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
async def test_failures_are_told_in_the_form_of_openai(engine, http, failure, status, kind, code, streams):
    engine.failure = failure
    engine.deltas = [failure]
    body = {"model": WRITER, "messages": [USER], "stream": streams}
    async with http.post("/v1/chat/completions", json=body) as response:
        error = (await response.json())["error"]

    assert (response.status, error["type"], error["code"]) == (status, kind, code)
    assert "secret" not in error["message"]
    final = status in (408, 500)
    assert response.headers.get("X-Should-Retry") == ("false" if final else None)
    assert ("Retry-After" in response.headers) == (status in (429, 503))
    if failure.args == ("full",):
        # Some clients pass over a fraction; OpenAI's and Cohere's look for milliseconds first.
        assert (response.headers["Retry-After"], response.headers["Retry-After-Ms"]) == ("1", "250")


async def test_what_fails_later_is_an_event(engine, http):
    engine.deltas = [Delta("he", 1), errors.InferenceFailed("broke")]
    chat = await stream(http, "/v1/chat/completions", messages=[USER])
    events = await stream(http, "/v1/responses", input="Hi")

    assert chat[-1]["error"]["message"] == "broke"
    assert (events[-1]["type"], events[-1]["response"]["error"]["message"]) == ("response.failed", "broke")


async def test_an_unknown_model_is_not_found(http):
    for path, field in (("/v1/embeddings", "input"), ("/v1/completions", "prompt")):
        async with http.post(path, json={"model": "fake/nothing", field: "a"}) as response:
            error = (await response.json())["error"]
        assert (response.status, error["code"], error["param"]) == (404, "model_not_found", "model")


async def test_the_list_of_models_serves_both_kinds_of_client(http):
    async with http.get("/v1/models") as response:
        listed = await response.json()
    async with http.get("/v1/models/encoder") as response:
        alias = await response.json()
    async with http.get("/v1/models/fake%2Fencoder") as response:
        encoded = await response.json()
    async with http.get("/v1/models/fake/encodr") as response:
        unknown = await response.json()

    assert (unknown["detail"]["code"], unknown["error"]["code"]) == ("MODEL_NOT_FOUND", "model_not_found")
    assert listed["object"] == "list"
    assert {model["name"] for model in listed["models"]} < {model["id"] for model in listed["data"]}
    assert {"id": "encoder", "object": "model", "created": 0, "owned_by": "fake", "root": "fake/encoder"} in (
        listed["data"]
    )
    assert (alias["id"], alias["name"], alias["object"]) == ("encoder", "fake/encoder", "model")
    assert (encoded["id"], encoded["loaded"]) == ("fake/encoder", True)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/embeddings", {"model": "encoder", "input": "a", "dimensions": "4"}, "dimensions"),
        ("/v1/embeddings", {"model": "encoder", "input": [1, "a"]}, "input"),
        ("/v1/chat/completions", {"model": WRITER, "messages": [{"role": 3}]}, "messages"),
        ("/v1/chat/completions", {"model": WRITER, "messages": [USER], "n": 2}, "n"),
        ("/v1/completions", {"model": WRITER, "prompt": "a", "stop": [""]}, "stop"),
        ("/v1/responses", {"model": WRITER, "input": []}, "input"),
    ],
)
async def test_a_complaint_names_its_parameter(http, path, body, param):
    async with http.post(path, json=body) as response:
        assert (await response.json())["error"]["param"] == param


async def test_a_body_that_is_parsed_in_a_child_is_answered_all_the_same(engine, http):
    texts = [f"{number} {'camel ' * 300}" for number in range(5000)]
    body = json.dumps({"model": "encoder", "input": texts, "encoding_format": "base64"}).encode()
    headers = {"Content-Type": "application/json"}
    async with http.post("/v1/embeddings", data=BytesIO(body), headers=headers) as response:
        made = await response.json()

    assert len(body) > LARGE_BYTES
    assert [entry["index"] for entry in made["data"]] == list(range(5000))
    assert engine.requests[-1].items[-1].text == texts[-1]
