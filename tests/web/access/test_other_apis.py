"""A key counts on the routes of other APIs as on ours, and is refused in their words."""

from __future__ import annotations

import re

import pytest
from aiohttp import FormData

from engine.access.principals import Action, Limits
from tests.web.access.conftest import bearer
from tests.web.test_openapi import CALLS
from web.access.routes import NEEDS

pytestmark = pytest.mark.anyio

PAIR = {"query": {"text": "q"}, "items": [{"text": "a"}]}
ELSEWHERE = [
    ("/v1/rerank", {"model": "fake/reranker", "query": "q", "documents": ["a"]}, "message"),
    ("/tei/fake/reranker/rerank", {"query": "q", "texts": ["a"]}, "error"),
    ("/tei/fake/reranker/tokenize", {"inputs": "a"}, "error"),
    ("/v1/estimate", {"task": "score", "model": "fake/reranker", **PAIR}, "detail"),
]


@pytest.mark.parametrize(("path", "body", "form"), ELSEWHERE)
async def test_a_key_for_other_models_is_refused_and_one_for_this_is_let_in(http, guarded, path, body, form):
    other = guarded.key("other", models=("fake/encoder",))
    mine = guarded.key("mine", models=("fake/reranker",))

    async with http.post(path, json=body, headers=bearer(other)) as answer:
        refused, said = answer.status, await answer.json()
    async with http.post(path, json=body, headers=bearer(mine)) as answer:
        taken = answer.status

    assert (refused, taken) == (403, 200)
    assert form in said


@pytest.mark.parametrize(("path", "body", "form"), ELSEWHERE)
async def test_without_a_key_nobody_is_let_in(http, guarded, engine, path, body, form):
    guarded.key("somebody")

    async with http.post(path, json=body) as answer:
        assert (answer.status, "WWW-Authenticate" in answer.headers) == (401, True)
        assert form in await answer.json()
    assert engine.requests == []


ITEMS = {"items": [{"text": "a"}]}
MODELS = {
    **{path: body for path, body in CALLS.items() if "/pools" not in path},
    "/v1/encode/fake/encoder:short": ITEMS,
    "/v1/encode/encoder": ITEMS,
    "/v1/jobs": {"operation": "encode", "model": "fake/encoder", **ITEMS},
    "/v1/batches": {"input_file_id": "file-x", "endpoint": "/v1/encode/fake/encoder"},
}
"""Every call that names a model, by its id, by an alias and with a profile."""


@pytest.mark.parametrize("path", MODELS)
async def test_no_route_lets_a_key_have_a_model_that_it_is_not_for(http, guarded, engine, path):
    other = bearer(guarded.key("other", models=("none/*",)))
    async with http.post(path, json=MODELS[path], headers=other) as answer:
        assert answer.status == 403, await answer.text()
    assert engine.requests == engine.estimated == []


async def test_a_recording_in_a_form_is_no_way_around_it(http, guarded, engine):
    form = FormData({"model": "fake/extractor"})
    form.add_field("file", b"x", filename="a.wav")
    other = bearer(guarded.key("other", models=("none/*",)))
    async with http.post("/v1/audio/transcriptions", data=form, headers=other) as answer:
        assert (answer.status, engine.requests) == (403, [])


async def test_every_route_that_has_a_model_work_counts_for_a_key_s_rate(http, guarded):
    once = bearer(guarded.key("once", limits=Limits(rate=1e-6, burst=1)))
    async with http.post("/v1/estimate", json={}, headers=once) as answer:
        assert answer.status == 400
    calls = [name.split() for name, action in NEEDS.items() if action is Action.CALL]

    assert len(calls) > 35
    for method, path in calls:
        async with http.request(method, re.sub(r"{\w+}", "x", path), json={}, headers=once) as answer:
            assert (answer.status, "Retry-After" in answer.headers) == (429, True), path
