"""`/embed` and its kin: what TEI's clients send, what they read, and what is refused in TEI's words."""

from __future__ import annotations

import json
from io import BytesIO

import numpy as np
import pytest
from aiohttp import ClientSession

from engine.config import Settings
from engine.entry import Lora
from engine.errors import InferenceFailed, InputTooLong, LoadFailed, QueueFull, Stopped
from engine.parts import wrong_pins
from engine.requests import EncodeOptions, OutputType, Overflow
from tests.web.conftest import serving
from tests.web.fakes import FakeEngine, catalog, spec, vector

pytestmark = pytest.mark.anyio
HERE = "/tei/fake/encoder"


async def post(http, path, body):
    data, headers = BytesIO(json.dumps(body).encode()), {"Content-Type": "application/json"}
    async with http.post(path, data=data, headers=headers) as answer:
        return answer.status, await answer.json()


async def embed(http, inputs, path="/embed", **fields):
    return await post(http, HERE + path, {"inputs": inputs, **fields})


async def test_a_text_alone_and_a_list_both_give_a_list_of_vectors(http):
    one, two = await embed(http, "a"), await embed(http, ["a", "b"])

    assert (one[0], two[0]) == (200, 200)
    np.testing.assert_array_equal(np.float32(one[1]), [vector("a")])
    np.testing.assert_array_equal(np.float32(two[1]), [vector("a"), vector("b")])


async def test_what_tei_defaults_to_is_what_the_engine_is_asked(http, engine):
    await embed(http, "a")
    await embed(http, "a", normalize=False, dimensions=64, truncate=False)
    await embed(http, "a", truncate=True, truncation_direction="Right")

    first, second, third = (request.options for request in engine.requests)
    assert isinstance(first, EncodeOptions)
    assert (first.normalize, first.dimensions, first.overflow) == (True, None, Overflow.DEFAULT)
    assert (second.normalize, second.dimensions, second.overflow) == (False, 64, Overflow.ERROR)
    assert third.overflow is Overflow.TRUNCATE


async def test_token_ids_go_to_the_model_as_they_are(http, engine):
    await embed(http, [101, 7592, 102])
    await embed(http, [[101, 102], [101, 5, 102]])

    asked = [[item.tokens for item in request.items] for request in engine.requests]
    assert asked == [[(101, 7592, 102)], [(101, 102), (101, 5, 102)]]


async def test_unpooled_and_sparse_vectors_have_shapes_of_their_own(http, engine):
    status, every = await embed(http, ["a", "b"], "/embed_all")
    also, sparse = await embed(http, "a", "/embed_sparse")

    assert (status, also) == (200, 200)
    assert np.shape(every) == (2, 4, 96)
    assert sparse == [[{"index": 5, "value": 1.5}, {"index": 9, "value": 0.25}]]
    kinds = [request.options.output_types for request in engine.requests]
    assert kinds == [(OutputType.MULTIVECTOR,), (OutputType.SPARSE,)]


@pytest.fixture
def prompted() -> FakeEngine:
    """A model that has a prompt for each role."""
    engine = FakeEngine()
    prompts = {"query": "query: ", "document": "passage: "}
    entry = spec("fake/encoder", "encode", outputs=["dense"], prompts=prompts)
    engine.catalog.models["fake/encoder"] = entry
    return engine


async def test_prompts_are_the_client_s_own_unless_it_names_one(prompted):
    async with serving(prompted) as url, ClientSession(url) as session:
        for name in (None, "query", "document"):
            await embed(session, "a", prompt_name=name)
        status, said = await embed(session, "a", prompt_name="title")

    asked = [(request.options.is_query, request.options.instruction) for request in prompted.requests]
    assert asked == [(False, ""), (True, None), (False, None)]
    assert status == 422
    assert said["error"] == "fake/encoder has no prompt 'title'; it has: query, document."


async def test_a_prompt_with_the_name_of_an_adapter_asks_for_that_adapter(prompted):
    entry = prompted.catalog.models["fake/encoder"]
    lora = {"sources": [{"directory": "/nowhere"}]}
    prompted.catalog.models["fake/encoder"] = entry.model_copy(
        update={"loras": {"matching": Lora.model_validate(lora)}}
    )
    async with serving(prompted) as url, ClientSession(url) as session:
        await embed(session, "a", prompt_name="matching")

    assert [request.options.lora for request in prompted.requests] == ["matching"]


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"inputs": []}, 400, "Empty"),
        ({"inputs": ["a"] * 5001}, 413, "Validation"),
        ({"inputs": None}, 422, "Validation"),
        ({}, 422, "Validation"),
        ({"inputs": 3}, 422, "Validation"),
        ({"inputs": {"text": "a"}}, 422, "Validation"),
        ({"inputs": [None]}, 422, "Validation"),
        ({"inputs": ["a", [1]]}, 422, "Validation"),
        ({"inputs": ["a", 1]}, 422, "Validation"),
        ({"inputs": [[["a"]]]}, 422, "Validation"),
        ({"inputs": [-1]}, 422, "Validation"),
        ({"inputs": [2**40]}, 422, "Validation"),
        ({"inputs": [1.5]}, 422, "Validation"),
        ({"inputs": "\ud800"}, 422, "Validation"),
        ({"inputs": "a", "truncation_direction": "left"}, 422, "Validation"),
        ({"inputs": "a", "truncate": "yes"}, 422, "Validation"),
        ({"inputs": "a", "dimensions": 0}, 422, "Validation"),
        ({"inputs": "a", "dimensions": -1}, 422, "Validation"),
        ({"inputs": "a", "encoding_format": "base64"}, 422, "Validation"),
        ({"inputs": "x" * (2**21 + 1)}, 413, "Validation"),
    ],
)
@pytest.mark.parametrize("path", ["/embed", "/embed_sparse"])
async def test_what_is_wrong_has_tei_s_status_and_form(http, engine, body, status, kind, path):
    if path == "/embed_sparse" and {"dimensions", "encoding_format"} & body.keys():
        return
    got, said = await post(http, HERE + path, body)

    assert (got, said["error_type"]) == (status, kind)
    assert said.keys() == {"error", "error_type"}
    assert engine.requests == []


@pytest.mark.parametrize("text", ["", " ", "\r\n", "\u0000", "e" + "\u0301" * 10_000, "👩‍👩‍👧", "שלום"])
async def test_odd_texts_are_texts(http, engine, text):
    status, _ = await embed(http, [text, "a"])

    assert status == 200
    assert [item.text for item in engine.requests[0].items] == [text, "a"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"null"])
async def test_a_body_that_is_no_map_is_refused(http, body):
    async with http.post(HERE + "/embed", data=body) as answer:
        assert answer.status == 422
        assert (await answer.json())["error_type"] == "Validation"


@pytest.mark.parametrize(
    ("failure", "status", "kind"),
    [
        (QueueFull("full").after(1.0), 429, "Overloaded"),
        (InferenceFailed("nan"), 424, "Backend"),
        (LoadFailed("broken"), 424, "Backend"),
        (InputTooLong("too long"), 413, "Validation"),
        (Stopped(), 503, "Unhealthy"),
        (RuntimeError("ours"), 500, "Backend"),
    ],
)
async def test_what_goes_wrong_later_has_tei_s_status_and_form_too(http, engine, failure, status, kind):
    engine.failure = failure

    assert (await embed(http, "a"))[0] == status
    assert (await embed(http, "a"))[1]["error_type"] == kind


async def test_at_the_root_the_model_of_the_settings_answers_and_else_the_way_is_told(http):
    engine = FakeEngine()
    engine.settings = engine.settings.model_copy(update={"tei_embed": "fake/encoder"})
    async with serving(engine) as url, ClientSession(url) as session:
        status, _ = await post(session, "/embed", {"inputs": "a"})
    missing, said = await post(http, "/embed", {"inputs": "a"})

    assert (status, engine.requests[0].model) == (200, "fake/encoder")
    assert missing == 404
    assert said["error"] == "No model answers /embed here: use /tei/{model}/embed, or set tei_embed to one."


async def test_a_model_that_there_is_not_is_named_with_its_nearest(http):
    status, said = await post(http, "/tei/fake/encodr/embed", {"inputs": "a"})

    assert (status, said["error_type"]) == (404, "Validation")
    assert "Did you mean 'fake/encoder'?" in said["error"]


async def test_without_a_task_the_path_does_what_the_model_is_there_for(http):
    encoded = await post(http, "/tei/fake/encoder", {"inputs": "a"})
    ranked = await post(http, "/tei/fake/reranker", {"query": "a", "texts": ["a", "b"]})

    assert (encoded[0], ranked[0]) == (200, 200)
    assert [one["index"] for one in ranked[1]] == [0, 1]


async def test_5000_inputs_have_5000_answers_in_order(http):
    texts = [str(n) for n in range(5000)]

    status, said = await embed(http, texts)

    assert (status, len(said)) == (200, 5000)
    np.testing.assert_array_equal(np.float32(said[4321]), vector("4321"))


def test_a_model_of_the_settings_that_there_is_not_is_said_before_the_server_starts():
    chosen = Settings(tei_embed="fake/encodr", tei_rerank="fake/reranker")

    (complaint,) = wrong_pins(chosen, catalog())

    assert complaint.startswith("default: tei_embed: The catalogue has no model 'fake/encodr'")
