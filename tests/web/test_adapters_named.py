"""Where an adapter is named: obeyed, or refused with the place where it belongs; never ignored."""

from __future__ import annotations

import pytest

from engine.entry import Lora, Source
from engine.errors import InputTooLong
from engine.requests import Extracted, ExtractOptions, Response, Usage
from tests.web.fakes import TIMING

pytestmark = pytest.mark.anyio

ITEMS = {"items": [{"text": "x"}]}
QUERY = {"query": {"text": "q"}}
NAMED = {"options": {"lora_id": "legal"}}
RERANK = "/tei/fake/reranker"
EMBEDDINGS = {"model": "fake/encoder", "input": "x"}


@pytest.fixture(autouse=True)
def adapters(engine):
    """Every model has two."""
    lora = Lora.model_validate({"sources": [{"directory": "/nowhere"}]})
    for name, entry in list(engine.catalog.models.items()):
        engine.catalog.models[name] = entry.model_copy(update={"loras": {"legal": lora, "medical": lora}})


async def post(http, path, body):
    async with http.post(path, json=body, headers={"Accept": "application/json"}) as response:
        return response.status, await response.text()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/encode/fake/encoder:legal", ITEMS),
        ("/v1/encode/fake/encoder:legal", {**ITEMS, "params": NAMED}),
        ("/v1/encode/fake/encoder", {**ITEMS, "params": NAMED}),
        ("/v1/score/fake/reranker", {**ITEMS, **QUERY, **NAMED}),
        ("/v1/generate/fake/writer", {"prompt": "x", "lora_adapter": "legal"}),
        ("/v1/embeddings", {**EMBEDDINGS, "lora_adapter": "legal"}),
        (f"{RERANK}/rerank", {"query": "q", "texts": ["x"], "prompt_name": "legal"}),
        (f"{RERANK}:legal/rerank", {"query": "q", "texts": ["x"]}),
        (f"{RERANK}/predict", {"inputs": ["q", "x"], "prompt_name": "legal"}),
        (f"{RERANK}:legal/predict", {"inputs": ["q", "x"]}),
    ],
)
async def test_an_adapter_that_is_named_where_it_is_read_is_the_one_that_answers(engine, http, path, body):
    status, said = await post(http, path, body)

    assert (status, [request.options.lora for request in engine.requests]) == (200, ["legal"]), said


async def test_a_classifier_reads_with_the_adapter_that_prompt_name_names(engine, http):
    engine.answer = lambda r: Response(r.model, (Extracted(),) * len(r.items), Usage(), TIMING)
    await post(http, "/tei/fake/extractor/predict", {"inputs": "x", "prompt_name": "legal"})

    (request,) = engine.requests
    assert isinstance(request.options, ExtractOptions) and request.options.lora == "legal"


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (
            "/v1/encode/fake/encoder:legal",
            {**ITEMS, "params": {"options": {"lora_id": "medical"}}},
            "name one",
        ),
        ("/v1/generate/fake/writer", {"prompt": "x", "lora_adapter": "medical", **NAMED}, "name one"),
        (
            "/v1/generate/fake/writer",
            {"prompt": "x", "options": {"lora_adapter": "legal"}},
            "in lora_adapter",
        ),
        ("/v1/embeddings", {**EMBEDDINGS, "lora_adapter": "legal", "task": "medical"}, "name one"),
        ("/v1/encode/fake/encoder", {**ITEMS, **NAMED}, "options.lora_id is not read here"),
        ("/v1/encode/fake/encoder", {**ITEMS, "lora_adapter": "legal"}, "in params.options.lora_id"),
        ("/v1/encode/fake/encoder", {**ITEMS, "params": {"lora_id": "legal"}}, "in params.options.lora_id"),
        ("/v1/score/fake/reranker", {**ITEMS, **QUERY, "params": NAMED}, "in options.lora_id"),
        ("/v1/extract/fake/extractor", {**ITEMS, **NAMED}, "in params.options.lora_id"),
        ("/v1/embeddings", {**EMBEDDINGS, **NAMED}, "in lora_adapter"),
        (
            "/v1/rerank",
            {"model": "fake/reranker", "query": "q", "documents": ["x"], "lora_id": "legal"},
            "options",
        ),
        (f"{RERANK}/rerank", {"query": "q", "texts": ["x"], "lora_id": "legal"}, "in prompt_name"),
        (f"{RERANK}/rerank", {"query": "q", "texts": ["x"], "prompt_name": "zzz"}, "it has: legal, medical"),
        (f"{RERANK}/predict", {"inputs": ["q", "x"], "prompt_name": "zzz"}, "it has: legal, medical"),
        ("/v1/encode/fake/encoder:zzz", ITEMS, "no profile or adapter 'zzz'"),
    ],
)
async def test_an_adapter_that_nobody_would_read_is_refused(engine, http, path, body, said):
    status, told = await post(http, path, body)

    assert (status in (400, 422), engine.requests) == (True, []) and said in told, told


async def test_fields_that_name_no_adapter_are_ignored_as_ever(engine, http):
    body = {
        "items": [{"text": "lora"}],
        "options": {"zzz": 1},
        "lora_id": None,
        "params": {"options": {"a": 1}},
    }
    status, said = await post(http, "/v1/encode/fake/encoder", body)

    assert status == 200, said


async def test_a_misspelt_option_is_refused_with_the_one_it_is_near(http):
    status, said = await post(
        http, "/v1/encode/fake/encoder", {**ITEMS, "params": {"options": {"is_qury": True}}}
    )

    assert status == 400 and "Did you mean is_query for is_qury?" in said


async def test_adapters_and_whether_weights_are_here_are_listed(engine, http):
    known, gone = engine.catalog.models, (Source(directory="/nowhere"),)
    known["fake/reranker"] = known["fake/reranker"].model_copy(update={"sources": gone})
    async with http.get("/v1/models") as response:
        (listed,) = [m for m in (await response.json())["models"] if m["name"] == "fake/reranker"]
    async with http.get("/v1/models/fake/reranker") as response:
        shown = await response.json()

    assert listed["adapters"] == shown["adapters"] == ["legal", "medical"]
    assert listed["weights"] == shown["weights"] == "not here"


@pytest.mark.parametrize("path", ["health", "info"])
async def test_a_path_with_an_adapter_tells_of_its_model(http, path):
    async with http.get(f"/tei/fake/encoder:legal/{path}") as response:
        assert response.status == 200


async def test_usage_is_told_when_every_item_failed(engine, http):

    engine.answer = lambda r: Response(r.model, (InputTooLong(),), Usage(), TIMING)
    status, said = await post(http, "/v1/extract/fake/extractor", ITEMS)

    assert status == 200 and '"usage":{"input_tokens":0}' in said.replace(" ", ""), said
