"""The `cohere` package, unchanged, and Jina's form of the same route, against a server with real weights."""

from __future__ import annotations

from collections.abc import Iterator

import cohere
import numpy as np
import pytest
from cohere.errors import BadRequestError, NotFoundError

from tests.acceptance.asking import MINILM, RERANKER
from tests.acceptance.serving import Server

QUERY = "How many people live in Berlin?"
DOCUMENTS = [
    "Berlin is well known for its museums.",
    "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
    "The cat sat on the mat.",
]
BEST_FIRST = [1, 0, 2]


@pytest.fixture
def client(server: Server) -> Iterator[cohere.ClientV2]:
    with cohere.ClientV2(api_key="none", base_url=server.url) as client:
        yield client


@pytest.fixture(scope="module")
def raw(server: Server) -> list[float]:
    """What the native route says of the same pairs."""
    body = {"query": {"text": QUERY}, "items": [{"text": text} for text in DOCUMENTS]}
    answer = server.http.post(f"/v1/score/{RERANKER}", json=body, headers={"Accept": "application/json"})
    by_id = {score["item_id"]: score["score"] for score in answer.raise_for_status().json()["scores"]}
    return [by_id[f"item-{index}"] for index in range(len(DOCUMENTS))]


def sigmoid(scores: list[float]) -> list[float]:
    return (1 / (1 + np.exp(-np.array(scores)))).tolist()


def test_the_second_version_ranks_as_the_native_route_between_0_and_1(client, raw):
    ranked = client.rerank(model=RERANKER, query=QUERY, documents=DOCUMENTS)

    assert [result.index for result in ranked.results] == BEST_FIRST
    chances = sigmoid(raw)
    for result in ranked.results:
        assert result.relevance_score == pytest.approx(chances[result.index], abs=1e-6)
    assert ranked.meta.tokens.input_tokens > 3 * len(QUERY.split())


def test_the_first_version_takes_maps_and_gives_documents_back(server):
    documents = [{"title": "Berlin", "body": text} for text in DOCUMENTS]

    with cohere.Client(api_key="none", base_url=server.url) as client:
        ranked = client.rerank(
            model=RERANKER,
            query=QUERY,
            documents=documents,
            rank_fields=["title", "body"],
            top_n=2,
            return_documents=True,
            max_chunks_per_doc=10,
        )

    assert [result.index for result in ranked.results] == BEST_FIRST[:2]
    assert ranked.results[0].document.text == "Berlin\n" + DOCUMENTS[1]


@pytest.mark.anyio
async def test_both_clients_work_asynchronously_too(server):
    async with cohere.AsyncClientV2(api_key="none", base_url=server.url) as second:
        ranked = await second.rerank(model=RERANKER, query=QUERY, documents=DOCUMENTS, top_n=4)
    async with cohere.AsyncClient(api_key="none", base_url=server.url) as first:
        again = await first.rerank(model=RERANKER, query=QUERY, documents=DOCUMENTS)

    assert [result.index for result in ranked.results] == BEST_FIRST
    assert [result.relevance_score for result in again.results] == pytest.approx(
        [result.relevance_score for result in ranked.results]
    )


def test_long_documents_are_cut_and_duplicates_score_alike(client):
    ranked = client.rerank(
        model=RERANKER, query=QUERY, documents=["word " * 5000, DOCUMENTS[1], "", DOCUMENTS[1]]
    )

    assert [result.index for result in ranked.results][:2] == [1, 3]
    assert ranked.results[0].relevance_score == pytest.approx(ranked.results[1].relevance_score, abs=1e-6)


def test_the_client_raises_its_own_errors_with_our_words(client):
    with pytest.raises(NotFoundError, match="The catalogue has no model"):
        client.rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS)
    with pytest.raises(BadRequestError, match="documents is empty"):
        client.rerank(model=RERANKER, query=QUERY, documents=[])
    with pytest.raises(BadRequestError, match="top_n"):
        client.rerank(model=RERANKER, query=QUERY, documents=DOCUMENTS, top_n=0)
    with pytest.raises(BadRequestError, match=f"{MINILM} cannot score"):
        client.rerank(model=MINILM, query=QUERY, documents=DOCUMENTS)


def test_jina_s_form_is_answered_with_what_its_clients_read(server, raw):
    body = {
        "model": RERANKER,
        "query": QUERY,
        "documents": [DOCUMENTS[0], {"text": DOCUMENTS[1]}, DOCUMENTS[2]],
        "top_n": 2,
        "return_documents": True,
        "truncation": True,
    }

    said = server.http.post("/v1/rerank", json=body).raise_for_status().json()

    assert said["model"] == RERANKER
    assert said["usage"]["total_tokens"] > 0
    assert [result["index"] for result in said["results"]] == BEST_FIRST[:2]
    assert said["results"][0]["document"] == {"text": DOCUMENTS[1]}
    assert said["results"][0]["relevance_score"] == pytest.approx(sigmoid(raw)[1], abs=1e-6)
