"""GLiREL gives what the library gave, whose numbers are kept, on tiny models of drawn weights."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from engine.adapters.forward.weights import BadWeights
from engine.adapters.glirel import FAMILY
from engine.entry import ModelSpec, Source
from engine.errors import InputTooLong, InvalidInput
from engine.requests import ExtractOptions, Item, Media, Overflow, Task
from tests.engine.adapters import tiny_glirel as tiny

KEPT = json.loads(tiny.KEPT.read_text())


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    made = {}

    def loaded(kind: str):
        if kind not in made:
            path = tiny.directory(kind, tmp_path_factory.mktemp(kind), KEPT[kind]["shapes"])
            made[kind] = (path, FAMILY.load(spec(path), path, "cpu"))
        return made[kind]

    return loaded


def spec(path, **more: object) -> ModelSpec:
    given = {
        "id": "a/b",
        "family": "glirel",
        "tasks": ("extract",),
        "devices": ("cpu",),
        "overflow": "window",
    }
    return ModelSpec(**(given | more), sources=(Source(directory=str(path)),))


def item(text: str, entities) -> Item:
    return Item(text=text, metadata={"entities": [{"start": start, "end": end} for start, end in entities]})


def jobs_of(path, items, labels=tuple(tiny.LABELS), **options):
    preparer = FAMILY.preparer(spec(path), path)
    return preparer.prepare(Task.EXTRACT, items, ExtractOptions(labels=labels, **options))


def told(answer) -> dict[tuple[int, int, str], float]:
    return {(r["head"], r["tail"], r["relation"]): r["score"] for r in answer.data["relations"]}


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_chances_are_those_of_the_library(kind, loaded, compared):
    path, model = loaded(kind)
    items = [item(*each) for each in zip(tiny.TEXTS, tiny.ENTITIES, strict=True)]

    answers = model.run(jobs_of(path, items, threshold=0.0))

    mine, others = [], []
    for answer, expected in zip(answers, KEPT[kind]["answers"], strict=True):
        found, theirs = told(answer), {(head, tail, name): score for head, tail, name, score in expected}
        assert found.keys() | {key for key, score in theirs.items() if score < 1e-6} == theirs.keys()
        mine += [found.get(key, 0.0) for key in theirs]
        others += theirs.values()
    compared("glirel", f"tiny {kind}", "glirel", mine, others)
    assert np.allclose(mine, others, atol=1e-4)
    assert np.ptp(others) > 0.02


def test_an_answer_says_which_entities_a_relation_joins(loaded):
    path, model = loaded("plain")
    text, entities = tiny.TEXTS[0], tiny.ENTITIES[0]

    (answer,) = model.run(jobs_of(path, [item(text, entities)], threshold=0.05))

    assert [(e.start, e.end) for e in answer.entities] == entities
    assert all(text[e.start : e.end] == e.text for e in answer.entities)
    for relation, said in zip(answer.relations, answer.data["relations"], strict=True):
        ends = (answer.entities[said["head"]].text, answer.entities[said["tail"]].text)
        assert (relation.head, relation.tail, relation.relation) == (*ends, said["relation"])
    scores = [relation.score for relation in answer.relations]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("kind", ["refined", "means"])
def test_texts_with_other_relations_share_a_batch_and_stay_what_they_are_alone(kind, loaded):
    path, model = loaded(kind)
    rng, jobs = random.Random(2), []
    for _ in range(32):
        text = " ".join(rng.choices(["the", "word", "Ulm", "on", "Zork", "in", "7"], k=rng.randint(2, 60)))
        starts = sorted(rng.sample(range(len(text) - 1), min(4, len(text) // 3)))
        entities = [(start, start + 1) for start in starts if text[start] != " "]
        labels = tuple(rng.sample(["works for", "lives in", "x", "knows", "word"], rng.randint(1, 4)))
        jobs += jobs_of(path, [item(text, entities)], labels, threshold=0.2)

    for together, job in zip(model.run(jobs), jobs, strict=True):
        found, alone = told(together), told(model.run([job])[0])
        assert found.keys() == alone.keys()
        assert np.allclose([found[key] for key in found], [alone[key] for key in found], atol=1e-4)


def test_a_pair_is_judged_where_one_window_sees_both(loaded):
    path, model = loaded("plain")
    words = ["word"] * 1200
    for place in (10, 340, 380, 389, 1199):
        words[place] = "Ulm!"  # two words
    text = " ".join(words)
    at = [n for n in range(len(text)) if text.startswith("Ulm", n)]

    (job,) = jobs_of(path, [item(text, [(n, n + 3) for n in at])], ("knows",), threshold=0.0)
    (answer,) = model.run([job])

    assert [window.entities for window in job.payload.windows] == [(0, 1, 2), (1, 2, 3)]
    near = {(a, b) for a, b, _ in told(answer)}
    assert near == {(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"entities": "Ulm"},
        {"entities": [{"start": 1}]},
        {"entities": [{"start": 0, "end": 99}]},
        {"entities": [{"start": 2, "end": 2}]},
        {"entities": [{"start": 3, "end": 4}]},
        {"entities": [{"start": True, "end": 2}]},
        {"entities": [{"start": 0, "end": 2, "score": "high"}]},
        {"entities": [{"start": 0, "end": 1}] * 201},
    ],
)
def test_entities_that_are_none_are_refused_and_neighbours_answered(given, loaded):
    path, model = loaded("plain")
    items = [Item(text="Ulm on Zork", metadata=given), item("Ulm Zork", [(0, 3), (4, 8)])]

    refused, good = jobs_of(path, items)

    assert isinstance(refused, InvalidInput)
    assert refused.item == 0
    assert len(model.run([good])[0].entities) == 2


def test_less_than_two_entities_have_no_relations(loaded):
    path, model = loaded("plain")
    answers = model.run(jobs_of(path, [item("", []), item("Ulm", [(0, 3)])], threshold=0.0))
    assert [answer.relations for answer in answers] == [(), ()]


@pytest.mark.parametrize(
    "options",
    [
        {"labels": ()},
        {"labels": ("a",), "instruction": "find it"},
        {"labels": ("a [REL] b",)},
        {"labels": ("a",), "output_schema": {"entities": ["x"]}},
        {"labels": tuple(f"the relation number {i}" for i in range(200))},
    ],
)
def test_options_that_cannot_be_followed_are_refused(options, loaded):
    path, _ = loaded("plain")
    with pytest.raises((InvalidInput, InputTooLong)):
        jobs_of(path, [item("Ulm", [])], **options)


def test_what_is_no_text_or_too_long_has_its_error_in_its_place(loaded):
    path, _ = loaded("plain")
    long = item("word " * 500, [(0, 4), (5, 9)])

    errors = jobs_of(path, [Item(images=(Media(b"x"),)), long], overflow=Overflow.ERROR)

    assert [type(error) for error in errors] == [InvalidInput, InputTooLong]


@pytest.mark.parametrize("wrong", [{"add_entity_markers": True}, {"rel_mode": "graph"}, {"scorer": "sum"}])
def test_a_kind_that_does_not_run_here_is_refused_by_name(wrong, loaded, tmp_path):
    path, _ = loaded("plain")
    config = json.loads((path / "glirel_config.json").read_text()) | wrong
    (tmp_path / "glirel_config.json").write_text(json.dumps(config))

    with pytest.raises(BadWeights, match="is a GLiREL with"):
        FAMILY.preparer(spec(tmp_path), tmp_path)
