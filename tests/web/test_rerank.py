"""Rerank as the clients of Cohere and Jina write it: shapes, order, and what is refused in their words."""

from __future__ import annotations

import json
from io import BytesIO

import pytest
from aiohttp import ClientSession

from engine.errors import InputTooLong, QueueFull, StillLoading, Stopped
from engine.requests import Overflow, Response, Scored, ScoreOptions, Task, Usage
from tests.web.conftest import serving
from tests.web.fakes import TIMING, FakeEngine

pytestmark = pytest.mark.anyio
DOCUMENTS = ["a cat", "a dog and a cat sat", "nothing"]


async def rerank(http, path="/v1/rerank", **fields):
    body = {"model": "fake/reranker", "query": "cat sat", "documents": DOCUMENTS, **fields}
    async with http.post(
        path, data=BytesIO(json.dumps(body).encode()), headers={"Content-Type": "application/json"}
    ) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
async def test_documents_come_best_first_with_their_index_in_the_request(http, engine, path):
    status, said = await rerank(http, path)

    assert status == 200
    assert [result["index"] for result in said["results"]] == [1, 0, 2]
    assert [result["relevance_score"] for result in said["results"]] == [2.0, 1.0, 0.0]
    assert "document" not in said["results"][0]
    (asked,) = engine.requests
    assert (asked.task, asked.model) == (Task.SCORE, "fake/reranker")


async def test_both_clients_find_what_was_used_where_they_look(http):
    _, said = await rerank(http)

    assert said["usage"]["total_tokens"] == said["meta"]["tokens"]["input_tokens"] == 9
    assert said["meta"]["api_version"] == {"version": "1"}
    assert said["id"] and said["model"] == "fake/reranker"


async def test_scores_are_sigmoid_and_long_documents_cut_unless_the_caller_says_otherwise(http, engine):
    await rerank(http)
    await rerank(http, options={"activation": "raw", "overflow_policy": "error", "class": "interactive"})

    first, second = engine.requests
    assert isinstance(first.options, ScoreOptions)
    assert (first.options.activation, first.options.overflow) == ("sigmoid", Overflow.TRUNCATE)
    assert (second.options.activation, second.options.overflow) == ("raw", Overflow.ERROR)
    assert second.service_class == 0


@pytest.mark.parametrize(("top_n", "count"), [(1, 1), (3, 3), (4, 3), (None, 3)])
async def test_top_n_cuts_the_list_and_may_exceed_it(http, top_n, count):
    status, said = await rerank(http, top_n=top_n)

    assert (status, len(said["results"])) == (200, count)


async def test_documents_come_back_when_they_are_asked_for(http):
    _, said = await rerank(http, return_documents=True, top_n=1)

    assert said["results"] == [
        {"index": 1, "relevance_score": 2.0, "document": {"text": "a dog and a cat sat"}}
    ]


async def test_duplicates_and_empty_texts_keep_their_own_places(http):
    status, said = await rerank(http, documents=["", "cat", "cat", " ", "\u0000", "\r\n"])

    assert status == 200
    assert [result["index"] for result in said["results"]] == [1, 2, 0, 3, 4, 5]


async def test_of_a_map_its_text_is_ranked_or_the_fields_that_are_named(http, engine):
    documents = [{"text": "cat", "id": 3}, {"text": "dog", "title": "cat sat"}]
    await rerank(http, documents=documents)
    await rerank(http, documents=documents, rank_fields=["title", "text"])
    await rerank(http, documents=documents, rank_fields=["id", "text"])

    texts = [[item.text for item in request.items] for request in engine.requests]
    assert texts == [["cat", "dog"], ["cat", "cat sat\ndog"], ["3\ncat", "dog"]]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"documents": []}, "documents is empty"),
        ({"documents": None}, "documents"),
        ({"documents": "a cat"}, "documents"),
        ({"documents": [None]}, "documents"),
        ({"documents": [3]}, "documents"),
        ({"documents": [["a"]]}, "documents"),
        ({"documents": ["a", {"title": "b"}]}, "documents[1] is a map without text"),
        ({"documents": [{"text": ["b"]}]}, "documents[0].text is no text"),
        ({"documents": [{"text": None}]}, "documents[0] is a map without text"),
        ({"documents": ["a"] * 5001}, "documents has 5001 entries; at most 5000"),
        ({"documents": ["a"], "rank_fields": [1]}, "rank_fields"),
        ({"query": None}, "query"),
        ({"query": ["a"]}, "query"),
        ({"model": None}, "model is missing"),
        ({"model": 3}, "model"),
        ({"top_n": 0}, "top_n"),
        ({"top_n": -1}, "top_n"),
        ({"top_n": "3"}, "top_n"),
        ({"max_chunks_per_doc": 0}, "max_chunks_per_doc"),
        ({"relevant_spans": {"mode": "enabled"}}, "relevant_spans are not offered"),
        ({"options": {"activation": "softmax"}}, "options.activation"),
        ({"options": [1]}, "options"),
        ({"query": "x" * (2**21 + 1)}, "query has 2097153 bytes"),
        ({"documents": ["a", "x" * (2**21 + 1)]}, "documents[1] has 2097153 bytes"),
        ({"query": "\ud800"}, "not valid Unicode"),
    ],
)
async def test_what_cannot_be_ranked_is_refused_in_cohere_s_form(http, engine, fields, said):
    status, answer = await rerank(http, **fields)

    assert status == 400
    assert said in answer["message"]
    assert answer.keys() == {"id", "message"}
    assert engine.requests == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"3", b"[" * 100_000])
async def test_a_body_that_is_no_map_is_refused(http, body):
    async with http.post("/v2/rerank", data=body, headers={"Content-Type": "application/json"}) as answer:
        assert answer.status == 400
        assert (await answer.json())["message"]


@pytest.mark.parametrize(
    ("failure", "status", "waits"),
    [
        (QueueFull("full").after(2.0), 429, "2"),
        (QueueFull("full").after(1.1), 429, "2"),
        (StillLoading().after(1.0), 503, "1"),
        (InputTooLong("too long").at(2), 400, None),
        (RuntimeError("broken"), 500, None),
    ],
)
async def test_what_goes_wrong_later_has_cohere_s_form_and_status_too(http, engine, failure, status, waits):
    engine.failure = failure
    body = {"model": "fake/reranker", "query": "q", "documents": ["a"]}

    async with http.post("/v1/rerank", json=body) as answer:
        assert answer.status == status
        assert answer.headers.get("Retry-After") == waits
        assert (await answer.json()).keys() == {"id", "message"}


async def test_a_document_that_was_wrong_is_named(http, engine):
    engine.failure = InputTooLong("too long").at(2)

    _, said = await rerank(http)

    assert said["message"] == "too long (documents[2])"


async def test_unknown_models_and_a_server_that_stops_speak_the_same_form(http, engine):
    status, said = await rerank(http, model="fake/rerankr")
    engine.accepting = False
    stopping, stops = await rerank(http)

    assert (status, stopping) == (404, 503)
    assert "Did you mean 'fake/reranker'?" in said["message"]
    assert stops["message"] == Stopped().message


async def test_a_score_that_is_no_number_is_an_error_not_an_answer(http, engine):
    engine.answer = lambda request: Response(
        request.model, (Scored(float("nan")), Scored(1.0), Scored(2.0)), Usage(), TIMING
    )

    status, said = await rerank(http)

    assert (status, said["message"]) == (500, "The model's score of this item is no number. (documents[0])")


async def test_many_small_maps_are_read_in_a_child_with_the_same_result(http, engine):
    engine.settings = engine.settings.model_copy(update={"max_items": 60_000})
    async with serving(engine) as url:
        async with ClientSession(url) as session:
            status, said = await rerank(session, documents=[{"text": "cat"}] * 51_000, top_n=2)

    assert status == 200
    assert [result["index"] for result in said["results"]] == [0, 1]
    assert len(engine.requests[0].items) == 51_000


async def test_below_a_base_path_the_form_is_the_same():
    engine = FakeEngine()
    engine.settings = engine.settings.model_copy(update={"base_path": "/serai"})
    async with serving(engine) as url:
        async with ClientSession(url) as session:
            status, said = await rerank(session, "/serai/v1/rerank", top_n=0)

    assert status == 400
    assert "message" in said


async def test_documents_that_were_cut_are_told_where_either_client_looks(http, engine):
    scores = tuple(Scored(1.0) for _ in DOCUMENTS)
    engine.answer = lambda request: Response(
        request.model, scores, Usage(input_tokens=9, truncated=2), TIMING
    )
    _, said = await rerank(http)

    assert said["usage"]["truncated"] == 2
    assert said["meta"]["warnings"][0].startswith("Of 2 documents only the beginning was read")
