"""With an open catalogue a repository may be named on every route that runs a model."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from engine.config import Settings
from engine.requests import Task
from tests.web.conftest import serving
from tests.web.fakes import FakeEngine, spec

NEW = {
    "org/encoder": spec("org/encoder", Task.ENCODE, outputs=["dense"], dims={"dense": 4}),
    "org/reranker": spec("org/reranker", Task.SCORE),
    "org/extractor": spec("org/extractor", Task.EXTRACT),
    "org/writer": spec("org/writer", Task.GENERATE),
}
TEXT = {"items": [{"text": "a"}]}
PAIR = {"query": {"text": "q"}, **TEXT}
CALLS = [
    ("/v1/encode/org__encoder", TEXT),
    ("/v1/score/org__reranker", PAIR),
    ("/v1/extract/org__extractor", TEXT),
    ("/v1/generate/org__writer", {"prompt": "a", "max_new_tokens": 4}),
    ("/v1/embeddings", {"model": "org/encoder", "input": "a"}),
    ("/v1/rerank", {"model": "org/reranker", "query": "q", "documents": ["a"]}),
    ("/v1/chat/completions", {"model": "org/writer", "messages": [{"role": "user", "content": "a"}]}),
    ("/v1/completions", {"model": "org/writer", "prompt": "a"}),
    ("/v1/responses", {"model": "org/writer", "input": "a"}),
    ("/v1/estimate", {"task": "encode", "model": "org/encoder", **TEXT}),
    ("/tei/org__encoder/embed", {"inputs": "a"}),
    ("/tei/org__encoder/tokenize", {"inputs": "a"}),
    ("/tei/org__reranker/rerank", {"query": "q", "texts": ["a"]}),
    ("/tei/org__reranker/predict", {"inputs": ["q", "a"]}),
    ("/tei/org__encoder", {"inputs": "a"}),
]


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(Settings(open_catalog=True), adoptable=dict(NEW))


@pytest.mark.anyio
@pytest.mark.parametrize(("path", "body"), CALLS, ids=[path for path, _ in CALLS])
async def test_a_repository_that_nobody_described_is_served(engine, http, path, body):
    async with http.post(path, json=body) as answer:
        assert answer.status == 200, await answer.text()
    assert engine.catalog.models.keys() & NEW.keys()


@pytest.mark.anyio
@pytest.mark.parametrize(("path", "body"), CALLS[:1] + CALLS[4:5] + CALLS[10:11])
async def test_what_is_no_repository_is_unknown_and_a_closed_catalogue_makes_none(engine, path, body):
    for settings, adoptable in ((Settings(open_catalog=True), {}), (Settings(), dict(NEW))):
        engine.settings, engine.adoptable = settings, adoptable
        async with serving(engine) as url, ClientSession(url) as http, http.post(path, json=body) as answer:
            assert answer.status == 404
    assert not engine.catalog.models.keys() & NEW.keys()


@pytest.mark.anyio
async def test_looking_at_a_repository_makes_no_entry_of_it(engine, http):
    async with http.get("/v1/models/org__encoder") as answer:
        assert answer.status == 404
    assert "org/encoder" not in engine.catalog.models
