from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import CrossEncoder

from engine.adapters.family import family
from engine.adapters.forward import weights as loading
from engine.catalog import ModelSpec, load
from engine.errors import EngineError, InferenceFailed, InputTooLong, InvalidInput
from engine.requests import Item, Media, Overflow, Scored, ScoreOptions, Task
from tests.engine.adapters.counting import values
from tests.weights import CATALOG, weights

RERANKER = "cross-encoder/ms-marco-MiniLM-L-12-v2"
QUERY = "How many people live in Berlin?"
PASSAGES = [
    "Berlin has a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometres.",
    "New York City is famous for the Metropolitan Museum of Art.",
    "",
    "Berlin " * 700,
    "emoji 😀\r\n",
    *("water " * n for n in range(1, 60, 11)),
]


class Loaded:
    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self.spec, self.path = spec, path
        self.preparer = family(spec.family).preparer(spec, path)
        self.model = family(spec.family).load(spec, path, "cpu")

    def prepare(self, query: str, passages: Sequence[str], **options: Any) -> list[Any]:
        items = [Item(text=text) for text in passages]
        return self.preparer.prepare(Task.SCORE, items, ScoreOptions(query=Item(text=query), **options))

    def score(self, query: str, passages: Sequence[str], **options: Any) -> list[float]:
        outputs = self.model.run(self.prepare(query, passages, **options))
        return [output.score for output in outputs if isinstance(output, Scored)]


@pytest.fixture(scope="module")
def reranker() -> Iterator[Loaded]:
    entry = Loaded(load([CATALOG]).models[RERANKER], weights(RERANKER))
    yield entry
    entry.model.unload()


def test_scores_equal_those_of_sentence_transformers(reranker: Loaded, compared: Callable[..., None]):
    reference = CrossEncoder(str(reranker.path), device="cpu", max_length=512)
    expected = reference.predict([(QUERY, passage) for passage in PASSAGES], batch_size=1)

    scores = reranker.score(QUERY, PASSAGES)

    assert np.abs(np.array(scores) - expected).max() <= 1e-4
    assert np.argmax(scores[:3]) == 0
    alone = [reranker.score(QUERY, [passage])[0] for passage in PASSAGES]
    library = "sentence-transformers"
    compared("cross_encoder", RERANKER, library, scores, expected, alone, weights="real")


def test_a_batch_gives_what_each_pair_alone_gives_at_every_place(reranker: Loaded):
    passages = [p for p in PASSAGES if len(p) < 1000]
    alone = [reranker.score(QUERY, [passage])[0] for passage in passages]

    forth = reranker.score(QUERY, passages)
    back = reranker.score(QUERY, passages[::-1])[::-1]

    assert np.abs(np.array(forth) - alone).max() <= 1e-5
    assert np.abs(np.array(back) - alone).max() <= 1e-5


def test_sigmoid_is_asked_per_request_and_raw_is_the_entrys_own(reranker: Loaded):
    (raw,) = reranker.score(QUERY, PASSAGES[2:3])
    jobs = reranker.prepare(QUERY, PASSAGES[2:3], activation="sigmoid") + reranker.prepare(
        QUERY, PASSAGES[2:3], activation="raw"
    )

    bounded, same = reranker.model.run(jobs)

    assert isinstance(bounded, Scored) and isinstance(same, Scored)
    assert bounded.score == pytest.approx(1 / (1 + math.exp(-raw)), abs=1e-6)
    assert same.score == pytest.approx(raw, abs=1e-5)
    with pytest.raises(InvalidInput, match="raw, sigmoid"):
        reranker.prepare(QUERY, ["x"], activation="softmax")


def test_only_the_passage_is_cut(reranker: Loaded):
    short, long = reranker.prepare("rain " * 300, ["x", "storm " * 400])
    question = short.payload.pair.ids[:301].tolist()

    assert long.payload.pair.ids[:301].tolist() == question
    assert (long.cost, long.usage.input_tokens, long.usage.truncated) == (512, 512, 1)
    assert (short.cost, short.usage.truncated) == (304, 0)
    assert long.payload.pair.types.tolist() == [0] * 302 + [1] * 210


def test_a_query_that_leaves_no_room_is_too_long_whatever_the_policy(reranker: Loaded):
    for policy in (Overflow.DEFAULT, Overflow.TRUNCATE, Overflow.ERROR):
        with pytest.raises(InputTooLong, match=r"510 tokens.*takes 512"):
            reranker.prepare("rain " * 510, ["x"], overflow=policy)


def test_a_long_passage_is_refused_where_that_was_asked(reranker: Loaded):
    good, bad = reranker.prepare(QUERY, ["fine", "storm " * 600], overflow=Overflow.ERROR)

    assert good.cost == 11
    assert isinstance(bad, InputTooLong)
    assert (bad.item, bad.details) == (1, {"length": 610, "max_length": 512})


def test_a_query_is_tokenised_once_however_many_passages(reranker: Loaded, monkeypatch: pytest.MonkeyPatch):
    seen: list[list[str]] = []
    ids = type(reranker.preparer._tokenizer).ids
    monkeypatch.setattr(
        type(reranker.preparer._tokenizer),
        "ids",
        lambda self, texts: (seen.append(list(texts)), ids(self, texts))[1],
    )

    reranker.prepare(QUERY, ["a", "b", "c"])

    assert seen == [[QUERY, "a", "b", "c"]]


def test_bad_passages_are_named_and_a_bad_query_fails_the_request(reranker: Loaded):
    items = [Item(text="good"), Item(text="\udc00"), Item(text="x", images=(Media(b""),)), Item()]

    found = reranker.preparer.prepare(Task.SCORE, items, ScoreOptions(query=Item(text=QUERY)))

    assert [e.item if isinstance(e, EngineError) else None for e in found] == [None, 1, 2, 3]
    assert all(isinstance(e, InvalidInput) for e in found[1:])
    for query in (Item(), Item(text="\ud800"), Item(text="q", audio=Media(b""))):
        with pytest.raises(InvalidInput, match="the query"):
            reranker.preparer.prepare(Task.SCORE, items[:1], ScoreOptions(query=query))


def broken(reranker: Loaded, to: Path, **changed: torch.Tensor) -> Path:
    tensors = loading.read(loading.stored_tensors(reranker.path)) | changed
    save_file(tensors, to / "model.safetensors", {"format": "pt"})
    for name in ("config.json", "tokenizer.json"):
        (to / name).write_bytes((reranker.path / name).read_bytes())
    return to


def test_a_score_that_is_not_finite_fails_its_own_job_only(reranker: Loaded, tmp_path: Path):
    name = "bert.embeddings.word_embeddings.weight"
    table = loading.read({name: loading.stored_tensors(reranker.path)[name]})[name]
    (job,) = reranker.prepare("q", ["poison"])
    table[job.payload.pair.ids[3]] = torch.inf
    model = Loaded(reranker.spec, broken(reranker, tmp_path, **{name: table}))
    expected = reranker.score(QUERY, ["fine", "too"])

    first, bad, last = model.model.run(model.prepare(QUERY, ["fine", "poison", "too"]))

    assert isinstance(bad, InferenceFailed)
    assert isinstance(first, Scored) and isinstance(last, Scored)
    assert [first.score, last.score] == pytest.approx(expected, abs=1e-5)


def test_a_classifier_of_several_labels_is_no_reranker(reranker: Loaded, tmp_path: Path):
    layer = {"classifier.weight": torch.zeros(3, 384), "classifier.bias": torch.zeros(3)}
    path = broken(reranker, tmp_path, **layer)
    config = loading.model_config(path)
    config |= {"id2label": {i: str(i) for i in range(3)}, "label2id": {str(i): i for i in range(3)}}
    (path / "config.json").write_text(json.dumps(config))

    with pytest.raises(loading.BadWeights, match="gives 3 numbers"):
        family("cross_encoder").load(reranker.spec, path, "cpu")


def test_the_footprint_counts_every_weight(reranker: Loaded):
    footprint = family("cross_encoder").footprint(reranker.spec, reranker.path)

    assert footprint.weights_bytes == 4 * values(reranker.model._model)
