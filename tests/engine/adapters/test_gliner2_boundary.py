"""GLiNER2.5 (architecture boundary) beside the library itself, on tiny random models of its own classes."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable

import pytest

from engine.errors import InvalidInput
from tests.engine.adapters.extracting import Extracting, alike, classes, spans
from tests.engine.adapters.test_gliner2 import TEXTS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from gliner2 import AutoExtractor

    from tests.engine.adapters import tiny_gliner2 as tiny

ASKED = ["person", "place", "the date"]
KINDS = {
    "plain": {},
    "shared": {
        "candidate_pool": "shared",
        "enable_span_content": True,
        "pool_size": 48,
        "abstention_threshold": 0.95,
        "adaptive_threshold": True,
    },
    "rotary": {
        "enable_rotary_endpoints": True,
        "boundary_attention_layers": 1,
        "directional_relation_states": True,
        "adaptive_threshold": True,
        "overlap_policy": "nested",
        "pair_temperature": 2.0,
        "classification_temperature": 0.5,
    },
    "bare": {"enable_abstention": True, "boundary_top_k_alpha": 0.5, "overlap_policy": "longest"},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Extracting]:
    made: dict[str, Extracting] = {}

    def served(name: str) -> Extracting:
        if name not in made:
            made[name] = Extracting("gliner2", tiny.boundary(tmp_path_factory.mktemp(name), **KINDS[name]))
        return made[name]

    return served


def reference(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoExtractor.from_pretrained(str(path))


@pytest.mark.parametrize("name", KINDS)
def test_entities_are_those_of_the_library(name, served, compared):
    model, seen = served(name), []
    library = reference(model.path)
    asked = library.create_schema().entities(ASKED)

    for threshold in (0.5, 0.3):
        for text, answer in zip(TEXTS, model.answers(TEXTS, ASKED, threshold=threshold), strict=True):
            theirs = library.extract(text, asked, threshold, include_confidence=True, include_spans=True)
            expected = {
                (e["start"], e["end"], label): e["confidence"]
                for label, listed in theirs["entities"].items()
                for e in listed
                if e["end"] <= len(text)
            }
            seen += alike(spans(answer), expected)
            assert all(text[e.start : e.end] == e.text for e in answer.entities)
    assert len(seen) > 3
    compared("gliner2", f"tiny boundary, {name}", "gliner2", *zip(*seen, strict=True))


@pytest.mark.parametrize("name", KINDS)
def test_classes_and_relations_are_those_of_the_library(name, served):
    model = served(name)
    library = reference(model.path)
    tasks = {"mood": ["good", "bad"], "topic": {"labels": ["sport", "war"], "multi_label": True}}
    asked = library.create_schema().classification("mood", ["good", "bad"])
    asked = asked.classification("topic", ["sport", "war"], multi_label=True, cls_threshold=0.01)
    asked = asked.relations(["works for", "lives in"])
    schema = {"classifications": tasks, "relations": ["works for", "lives in"]}

    ours = model.answers(TEXTS, output_schema=schema, threshold=0.01)

    related = 0
    for text, answer in zip(TEXTS, ours, strict=True):
        theirs = library.extract(text, asked, 0.01, include_confidence=True, include_spans=True)
        chances = classes(answer)
        expected = {c["label"]: c["confidence"] for c in [theirs["mood"], *theirs["topic"]]}
        alike({label: chances[label] for label in expected}, expected)
        pairs = {
            (r["head"]["text"], r["tail"]["text"], name): r["confidence"]
            for name, listed in theirs["relation_extraction"].items()
            for r in listed
        }
        related += len(alike({(r.head, r.tail, r.relation): r.score for r in answer.relations}, pairs))
    assert related > 2


@pytest.mark.parametrize("name", ["plain", "shared", "rotary"])
def test_texts_with_other_questions_share_a_batch_and_stay_what_they_are_alone(name, served):
    model, rng, jobs = served(name), random.Random(3), []
    schemas = [None, {"relations": ["works for"]}, {"classifications": {"mood": ["good", "bad"]}}]
    for _ in range(16):
        labels = tuple(rng.sample(["person", "place", "date", "name"], rng.randint(1, 4)))
        text = " ".join(rng.choices(["the", "word", "Ulm", "on", "Zork", "in", "7"], k=rng.randint(1, 20)))
        jobs += model.jobs([text], labels, threshold=0.3, output_schema=rng.choice(schemas))

    for together, alone in model.with_company(jobs):
        alike(spans(together), spans(alone))
        alike(classes(together), classes(alone))
        assert [(r.head, r.tail) for r in together.relations] == [(r.head, r.tail) for r in alone.relations]


def test_a_long_text_is_read_in_windows_and_nothing_is_told_twice(served):
    rng = random.Random(5)
    text = " ".join(rng.choices(["the", "word", "Ulm", "on", "Zork", "in"], k=900))
    model = served("rotary")

    (job,) = model.jobs([text], ASKED)
    answer = model.find(text, *ASKED, threshold=0.4)

    assert len(job.payload.windows) == 3
    assert answer.entities
    assert len(spans(answer)) == len(answer.entities)
    assert all(text[e.start : e.end] == e.text for e in answer.entities)
    assert max(e.start for e in answer.entities) > len(text) // 2


def test_what_its_head_does_not_give_here_is_refused_by_name(served, tmp_path):
    with pytest.raises(InvalidInput, match="structures"):
        served("plain").jobs(["a"], output_schema={"structures": {"firm": ["name"]}})
    with pytest.raises(InvalidInput, match="structures"):
        served("plain").jobs(["a"], output_schema={"properties": {"name": {"type": "string"}}})
    with pytest.raises(InvalidInput, match="relations"):
        Extracting("gliner2", tiny.boundary(tmp_path, enable_relations=False)).jobs(
            ["a"], output_schema={"relations": ["lives in"]}
        )
