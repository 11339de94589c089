"""`/rerank` and `/predict`: order, scores, pairs, and classes as TEI's clients read them."""

from __future__ import annotations

import pytest

from engine.errors import InferenceFailed
from engine.requests import (
    Classification,
    Extracted,
    ExtractOptions,
    Overflow,
    Request,
    Response,
    Scored,
    ScoreOptions,
    Usage,
)
from tests.web.fakes import TIMING, respond
from tests.web.tei.test_embed import post

pytestmark = pytest.mark.anyio
RANK = "/tei/fake/reranker/rerank"
PAIRS = "/tei/fake/reranker/predict"
CLASSES = "/tei/fake/extractor/predict"
TEXTS = ["a cat", "a dog and a cat sat", "nothing"]


def classified(request: Request) -> Response:
    """The longer a text the surer."""
    outputs = tuple(
        Extracted(
            classifications=(Classification("long", len(item.text or "") / 100), Classification("b", 0.0))
        )
        for item in request.items
    )
    return Response(request.model, outputs, Usage(), TIMING)


async def test_ranks_come_best_first_with_their_index(http):
    status, said = await post(http, RANK, {"query": "cat sat", "texts": TEXTS})

    assert status == 200
    assert said == [{"index": 1, "score": 2.0}, {"index": 0, "score": 1.0}, {"index": 2, "score": 0.0}]


async def test_texts_come_back_when_they_are_asked_for(http):
    _, said = await post(http, RANK, {"query": "cat", "texts": ["cat"], "return_text": True})

    assert said == [{"index": 0, "text": "cat", "score": 1.0}]


@pytest.mark.parametrize("path", [RANK, PAIRS])
async def test_scores_are_sigmoid_unless_they_are_to_be_raw(http, engine, path):
    for raw in (False, True):
        body = {"raw_scores": raw, "truncate": True}
        body |= {"query": "q", "texts": ["a"]} if path == RANK else {"inputs": ["q", "a"]}
        await post(http, path, body)

    first, second = (request.options for request in engine.requests)
    assert isinstance(first, ScoreOptions)
    assert (first.activation, second.activation) == ("sigmoid", "raw")
    assert first.overflow is Overflow.TRUNCATE
    assert first.query.text == "q"


async def test_a_pair_alone_has_one_list_and_several_have_a_list_each(http, engine):
    alone = await post(http, PAIRS, {"inputs": ["cat sat", "a cat"]})
    several = await post(http, PAIRS, {"inputs": [["cat", "a cat"], ["dog", "cat"], ["cat", "cat"]]})

    assert alone == (200, [{"score": 1.0, "label": "LABEL_0"}])
    assert several[1] == [[{"score": score, "label": "LABEL_0"}] for score in (1.0, 0.0, 1.0)]
    asked = [[item.text for item in request.items] for request in engine.requests]
    assert asked == [["a cat"], ["a cat", "cat"], ["cat"]]


async def test_a_pair_that_fails_is_named_by_its_own_place(http, engine):
    def answer(request: Request) -> Response:
        assert isinstance(request.options, ScoreOptions)
        if request.options.query.text == "bad":
            return Response(request.model, (Scored(1.0), InferenceFailed("broken")), Usage(), TIMING)
        return respond(request)

    engine.answer = answer
    pairs = [["good", "a"], ["bad", "b"], ["good", "c"], ["bad", "d"]]

    status, said = await post(http, PAIRS, {"inputs": pairs})

    assert (status, said) == (424, {"error": "broken (inputs[3])", "error_type": "Backend"})


async def test_classes_come_the_likeliest_first(http, engine):
    engine.answer = classified

    alone = await post(http, CLASSES, {"inputs": "abc"})
    listed = await post(http, CLASSES, {"inputs": ["abc"]})
    several = await post(http, CLASSES, {"inputs": [["abc"], ["abcdef"]], "raw_scores": True})

    assert alone == listed == (200, [{"score": 0.03, "label": "long"}, {"score": 0.0, "label": "b"}])
    assert [one[0]["score"] for one in several[1]] == [0.03, 0.06]
    options = [request.options for request in engine.requests]
    assert isinstance(options[2], ExtractOptions)
    assert [o.extra for o in options] == [{}, {}, {"raw_scores": True}]


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        (CLASSES, {"inputs": ["a", "b", "c"]}, 422, "inputs has 3 texts"),
        (CLASSES, {"inputs": [["a"], ["b", "c", "d"]]}, 422, "inputs[1] has 3 texts"),
        (CLASSES, {"inputs": [[]]}, 422, "inputs[0] has 0 texts"),
        (CLASSES, {"inputs": ["a", ["b"]]}, 422, "mixes texts and lists"),
        (CLASSES, {"inputs": [["a"], ["b", "c"]]}, 422, "single texts and pairs"),
        (CLASSES, {"inputs": ["a", "b"]}, 422, "reads one text at a time"),
        (CLASSES, {"inputs": []}, 400, "cannot be empty"),
        (CLASSES, {"inputs": [["a"]] * 5001}, 413, "batch size 5001"),
        (CLASSES, {"inputs": "a"}, 422, "knows no classes"),
        (PAIRS, {"inputs": "a"}, 422, "reads pairs"),
        (PAIRS, {"inputs": [["a"]]}, 422, "reads pairs"),
        (PAIRS, {"inputs": [["a", None]]}, 422, "inputs"),
        (RANK, {"query": "q", "texts": []}, 400, "`texts` cannot be empty"),
        (RANK, {"query": "q", "texts": ["a"] * 5001}, 413, "batch size 5001"),
        (RANK, {"query": "q", "texts": "a"}, 422, "texts"),
        (RANK, {"query": None, "texts": ["a"]}, 422, "query"),
        (RANK, {"texts": ["a"]}, 422, "query"),
        (RANK, {"query": "q", "texts": ["a", None]}, 422, "texts"),
        (RANK, {"query": "q", "texts": ["x" * (2**21 + 1)]}, 413, "texts[0] has 2097153 bytes"),
        ("/rerank", {"query": "q", "texts": ["a"]}, 404, "set tei_rerank"),
        ("/predict", {"inputs": "a"}, 404, "set tei_predict"),
    ],
)
async def test_what_cannot_be_ranked_or_sorted_is_refused_in_tei_s_form(http, path, body, status, said):
    got, answer = await post(http, path, body)

    assert got == status
    assert said in answer["error"]
    assert answer.keys() == {"error", "error_type"}


async def test_duplicates_and_odd_texts_keep_their_places(http):
    _, said = await post(http, RANK, {"query": "", "texts": ["", "", "\u0000", "\r\n"]})

    assert [one["index"] for one in said] == [0, 1, 2, 3]


async def test_a_thousand_first_texts_are_a_thousand_requests_and_one_answer(http, engine):
    pairs = [[f"q{n}", f"q{n}" if n % 2 else "x"] for n in range(1000)]

    status, said = await post(http, PAIRS, {"inputs": pairs})

    assert (status, len(engine.requests)) == (200, 1000)
    assert [one[0]["score"] for one in said] == [float(n % 2) for n in range(1000)]
