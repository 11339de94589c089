"""`/tokenize`, `/decode`, `/info` and `/health`: what a model's tokenizer does, and what a model is."""

from __future__ import annotations

import pytest

from engine.errors import InvalidInput
from tests.web.tei.test_embed import post

pytestmark = pytest.mark.anyio
CUT = "/tei/fake/encoder/tokenize"
SPELL = "/tei/fake/encoder/decode"
CLS = {"id": 101, "text": "[CLS]", "special": True, "start": None, "stop": None}


async def test_tokens_say_where_they_stand_in_code_points(http):
    status, said = await post(http, CUT, {"inputs": "👩 says hi"})

    assert status == 200
    assert said == [
        [
            CLS,
            {"id": 1000, "text": "👩", "special": False, "start": 0, "stop": 1},
            {"id": 1001, "text": "says", "special": False, "start": 2, "stop": 6},
            {"id": 1002, "text": "hi", "special": False, "start": 7, "stop": 9},
        ]
    ]


async def test_special_tokens_can_be_left_out_and_every_text_has_its_list(http):
    _, said = await post(http, CUT, {"inputs": ["a", "", " "], "add_special_tokens": False})

    assert [[token["id"] for token in one] for one in said] == [[1000], [], []]


async def test_ids_become_texts_again(http):
    alone = await post(http, SPELL, {"ids": [101, 7]})
    several = await post(http, SPELL, {"ids": [[101, 7], [8]], "skip_special_tokens": False})

    assert alone == (200, ["t7"])
    assert several == (200, ["t101 t7", "t8"])


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        (CUT, {"inputs": []}, 400, "Empty"),
        (CUT, {"inputs": None}, 422, "Validation"),
        (CUT, {"inputs": [1]}, 422, "Validation"),
        (CUT, {"inputs": ["a"] * 5001}, 413, "Validation"),
        (CUT, {"inputs": ["x" * 2**20, "x" * 2**20, "x"]}, 413, "Validation"),
        (SPELL, {"ids": []}, 400, "Empty"),
        (SPELL, {"ids": ["a"]}, 422, "Validation"),
        (SPELL, {"ids": [-1]}, 422, "Validation"),
        (SPELL, {"ids": [[1], 2]}, 422, "Validation"),
        ("/tokenize", {"inputs": "a"}, 404, "Validation"),
        ("/tei/no/such/tokenize", {"inputs": "a"}, 404, "Validation"),
    ],
)
async def test_what_cannot_be_cut_or_spelled_is_refused(http, path, body, status, kind):
    got, said = await post(http, path, body)

    assert (got, said["error_type"]) == (status, kind)


async def test_a_model_without_a_tokenizer_says_so(http, engine):
    engine.failure = InvalidInput("fake/encoder has no tokenizer that could be shown.")

    assert (await post(http, CUT, {"inputs": "a"}))[0] == 422


async def test_info_says_what_a_client_decides_by(http):
    async with http.get("/tei/fake/encoder/info") as answer:
        said = await answer.json()
    async with http.get("/tei/fake/reranker/info") as answer:
        ranker = await answer.json()

    assert said["model_id"] == "fake/encoder"
    assert said["model_type"] == {"embedding": {"pooling": "mean"}}
    assert (said["max_input_length"], said["max_client_batch_size"]) == (512, 5000)
    assert said["auto_truncate"] is True
    assert "reranker" in ranker["model_type"]


async def test_info_at_the_root_wants_a_model_in_the_settings(http):
    async with http.get("/info") as answer:
        assert answer.status == 404
        assert "set tei_embed or tei_rerank or tei_predict" in (await answer.json())["error"]


async def test_health_says_nothing_when_all_is_well_and_503_while_the_server_stops(http, engine):
    async with http.get("/tei/fake/encoder/health") as answer:
        assert (answer.status, await answer.read()) == (200, b"")
    async with http.get("/tei/no/such/health") as answer:
        assert answer.status == 404
    engine.accepting = False
    async with http.get("/tei/fake/encoder/health") as answer:
        assert answer.status == 503
        assert (await answer.json())["error_type"] == "Unhealthy"
