"""A key counts on the routes of other APIs as on ours, and is refused in their words."""

from __future__ import annotations

import pytest

from tests.web.access.conftest import bearer

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
