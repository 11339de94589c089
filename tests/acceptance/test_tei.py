"""Clients written for text-embeddings-inference, unchanged, against a server with real weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient, constants
from huggingface_hub.errors import HfHubHTTPError

from tests.acceptance.asking import MINILM, NER, RERANKER
from tests.acceptance.serving import Server

TEXTS = ["The cat sat on the mat.", "Berlin has museums.", ""]
JSON = {"Accept": "application/json"}


@pytest.fixture(scope="module")
def native(server: Server) -> np.ndarray:
    """What our own route says of the same texts."""
    body = {"items": [{"text": text} for text in TEXTS]}
    said = server.http.post(f"/v1/encode/{MINILM}", json=body, headers=JSON).raise_for_status().json()
    return np.float32([item["dense"]["values"] for item in said["items"]])


@pytest.fixture(autouse=True)
def to_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's client goes nowhere while it is offline, not even to us."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def tei(server: Server, model: str, path: str, **body: object):
    answer = server.http.post(f"/tei/{model}{path}", json=body)
    return answer.status_code, answer.json()


@pytest.mark.parametrize("path", ["/embed", ""])
def test_the_hub_s_client_gets_the_vectors_of_the_native_route(server, native, path):
    with InferenceClient(f"{server.url}/tei/{MINILM}{path}", token="none") as client:
        one = client.feature_extraction(TEXTS[0])
        all_of_them = client.feature_extraction(TEXTS, normalize=True, truncate=True)  # type: ignore[arg-type]

    np.testing.assert_allclose(one, native[:1], atol=1e-6)
    np.testing.assert_allclose(all_of_them, native, atol=1e-6)


@pytest.mark.anyio
async def test_the_hub_s_asynchronous_client_does_too(server, native):
    async with AsyncInferenceClient(f"{server.url}/tei/{MINILM}/embed", token="none") as client:
        found = await client.feature_extraction(TEXTS[1])

    np.testing.assert_allclose(found, native[1:2], atol=1e-6)


def test_the_hub_s_client_raises_its_own_error_with_our_words(server):
    with InferenceClient(f"{server.url}/tei/{RERANKER}/embed", token="none") as client:
        with pytest.raises(HfHubHTTPError) as refused:
            client.feature_extraction("a")

    assert refused.value.response.status_code == 422
    assert "cannot encode" in refused.value.response.json()["error"]


def test_what_is_not_normalised_points_the_same_way(server, native):
    status, said = tei(server, MINILM, "/embed", inputs=TEXTS[0], normalize=False)

    length = np.linalg.norm(said[0])
    assert status == 200
    assert length > 1.5
    np.testing.assert_allclose(np.float32(said[0]) / length, native[0], atol=1e-5)


def test_the_tokenizer_s_own_ids_give_the_same_vector(server, native):
    _, cut = tei(server, MINILM, "/tokenize", inputs=TEXTS[0])
    ids = [token["id"] for token in cut[0]]

    status, said = tei(server, MINILM, "/embed", inputs=ids)
    _, spelled = tei(server, MINILM, "/decode", ids=ids)

    assert status == 200
    np.testing.assert_allclose(np.float32(said), native[:1], atol=1e-5)
    assert spelled == ["the cat sat on the mat."]
    assert [t["text"] for t in cut[0]] == ["[CLS]", "The", "cat", "sat", "on", "the", "mat", ".", "[SEP]"]


def test_a_text_that_is_too_long_is_cut_or_refused_as_the_caller_says(server):
    long = "word " * 1000

    cut, _ = tei(server, MINILM, "/embed", inputs=long, truncate=True)
    refused, said = tei(server, MINILM, "/embed", inputs=["a", long], truncate=False)

    assert (cut, refused) == (200, 413)
    assert said["error_type"] == "Validation"
    assert "1002 tokens" in said["error"] and said["error"].endswith("(inputs[1])")


def test_ranks_and_pairs_are_those_of_the_native_route(server):
    query, texts = "who sat?", TEXTS[:2]
    body = {"query": {"text": query}, "items": [{"text": text} for text in texts]}
    scores = server.http.post(f"/v1/score/{RERANKER}", json=body, headers=JSON).json()["scores"]
    raw = {int(score["item_id"][5:]): score["score"] for score in scores}

    _, ranked = tei(server, RERANKER, "/rerank", query=query, texts=texts, raw_scores=True)
    _, chances = tei(server, RERANKER, "/rerank", query=query, texts=texts)
    _, pairs = tei(server, RERANKER, "/predict", inputs=[[query, text] for text in texts], raw_scores=True)

    assert [one["index"] for one in ranked] == sorted(raw, key=lambda index: -raw[index])
    assert [one["score"] for one in ranked] == pytest.approx([raw[one["index"]] for one in ranked], abs=1e-5)
    assert all(0 < one["score"] < 1 for one in chances)
    assert [one[0]["score"] for one in pairs] == pytest.approx([raw[0], raw[1]], abs=1e-5)


def test_a_model_that_finds_names_sorts_into_no_classes(server):
    status, said = tei(server, NER, "/predict", inputs="Ada lives in London.")

    assert status == 422
    assert "knows no classes" in said["error"]


def test_an_estimate_of_a_warm_model_comes_with_its_cost_in_tokens(server):
    tei(server, MINILM, "/embed", inputs=TEXTS)
    body = {"endpoint": f"/v1/encode/{MINILM}", "request": {"items": [{"text": text} for text in TEXTS]}}

    said = server.http.post("/v1/estimate", json=body).raise_for_status().json()

    assert (said["unit"], said["decision"], said["cold"]) == ("tokens", "admit", False)
    assert said["costs"] == [9, 6, 2]
    assert said["predicted"]["load_ms"] == 0


def test_the_command_line_asks_the_same_server(server, native):
    serai = str(Path(sys.executable).with_name("serai"))
    command = [serai, "call", "encode", MINILM, TEXTS[0], "--url", server.url]

    said = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)

    np.testing.assert_allclose(np.float32(said["items"][0]["dense"]["values"]), native[0], atol=1e-6)
