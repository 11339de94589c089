"""Graphs of real weights against torch, position by position; each is made once into the tests' store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from engine.adapters.family import Parkable, family
from engine.adapters.forward.weights import BadWeights
from engine.catalog import ModelSpec, Profile, Source, load
from engine.errors import WeightsUnavailable
from engine.requests import EncodeOptions, ExtractOptions, Item, Options, ScoreOptions, Task
from tests import weights

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
RERANKER = "cross-encoder/ms-marco-MiniLM-L-12-v2"
TAGGER = "nationaldesignstudio/rampart"
TEXTS = ["The levee broke at dawn.", "flood", "", "storm " * 400, *("rain " * n for n in range(1, 60, 7))]


class Ran:
    """An entry loaded with one backend."""

    def __init__(self, model: str, backend: str) -> None:
        weights.weights(model)
        self.spec = load([weights.CATALOG]).models[model].model_copy(update={"backend": backend})
        path = weights.test_sources().locate(self.spec)
        kind = family(self.spec.family)
        self.footprint = kind.footprint(self.spec, path)
        self._preparer = kind.preparer(self.spec, path)
        self.model = kind.load(self.spec, path, "cpu")

    def __call__(self, options: Options, texts: Sequence[str] = TEXTS) -> Sequence[Any]:
        (task,) = self.spec.tasks[:1]
        jobs = self._preparer.prepare(task, [Item(text=text) for text in texts], options)
        return self.model.run(jobs)  # type: ignore[union-attr,arg-type]


def _cosines(one: Sequence[Any], other: Sequence[Any]) -> np.ndarray:
    return np.array([a.dense @ b.dense for a, b in zip(one, other, strict=True)])


def test_vectors_of_a_graph_equal_those_of_torch_and_do_not_depend_on_their_neighbours():
    torch, onnx = Ran(MINILM, "torch"), Ran(MINILM, "onnx")

    together = onnx(EncodeOptions())
    alone = [onnx(EncodeOptions(), [text])[0] for text in TEXTS]

    expected = torch(EncodeOptions())
    for mine, single, theirs in zip(together, alone, expected, strict=True):
        assert np.abs(mine.dense - theirs.dense).max() <= 1e-4
        assert np.abs(mine.dense - single.dense).max() <= 1e-5
    assert not isinstance(onnx.model, Parkable)


def test_vectors_of_a_graph_of_eight_bits_have_nearly_the_same_direction_whoever_their_neighbours_are():
    torch, small = Ran(MINILM, "torch"), Ran(MINILM, "onnx-int8")

    together = small(EncodeOptions())
    alone = [small(EncodeOptions(), [text])[0] for text in TEXTS]

    assert _cosines(torch(EncodeOptions()), together).min() >= 0.99
    assert _cosines(alone, together).min() >= 0.9999


def test_scores_of_a_graph_equal_those_of_torch():
    asked = ScoreOptions(query=Item(text="When did the levee break?"))
    torch, onnx = Ran(RERANKER, "torch"), Ran(RERANKER, "onnx")

    expected, found = [[one.score for one in each(asked)] for each in (torch, onnx)]

    assert np.abs(np.array(found) - expected).max() <= 1e-4


def test_entities_of_a_graph_equal_those_of_torch():
    text = "My name is Maria Gonzalez and I live at 62 Baker Street, Springfield, IL 62704."
    torch, onnx = Ran(TAGGER, "torch"), Ran(TAGGER, "onnx")

    (expected,), (found,) = [each(ExtractOptions(), [text]) for each in (torch, onnx)]

    assert [(e.label, e.start, e.end) for e in found.entities] == [
        (e.label, e.start, e.end) for e in expected.entities
    ]
    assert len(expected.entities) >= 6
    for mine, theirs in zip(found.entities, expected.entities, strict=True):
        assert mine.score == pytest.approx(theirs.score, abs=1e-4)


def test_a_profile_with_a_backend_is_a_second_resident_and_one_with_the_entrys_own_is_not():
    profiles = {"fast": Profile(backend="onnx"), "same": Profile(backend="torch")}
    spec = load([weights.CATALOG]).models[MINILM].model_copy(update={"profiles": profiles})

    assert spec.unit("fast") == f"{MINILM}@onnx"
    assert spec.profiled("fast").backend == "onnx"
    assert spec.unit("same") == MINILM


def test_a_family_that_only_torch_runs_refuses_another_backend_in_the_catalogue():
    entry = {"id": "a/b", "family": "causal_lm", "tasks": ["generate"], "sources": [{"directory": "/x"}]}

    with pytest.raises(ValidationError, match="run by torch alone"):
        ModelSpec.model_validate({**entry, "backend": "onnx"})
    with pytest.raises(ValidationError, match="run by torch alone"):
        ModelSpec.model_validate({**entry, "profiles": {"fast": {"backend": "onnx"}}})


def test_a_graph_that_an_entry_names_and_nobody_has_is_said_with_its_name(tmp_path):
    (tmp_path / "model.safetensors").touch()
    spec = ModelSpec(
        id="a/b",
        family="text_encoder",
        tasks=(Task.ENCODE,),
        backend="onnx",
        options={"onnx_file": "onnx/model_O3.onnx"},
        sources=(Source(directory=str(tmp_path)),),
    )

    with pytest.raises(WeightsUnavailable, match="model_O3"):
        weights.test_sources().locate(spec)


def test_sparse_vectors_of_a_language_model_stay_with_torch():
    model = "serai/splade-tiny-msmarco"
    spec = load([weights.CATALOG]).models[model].model_copy(update={"backend": "onnx"})

    with pytest.raises(BadWeights, match="torch only"):
        family(spec.family).footprint(spec, weights.weights(model))
