"""GLiNER2 beside the library itself, on tiny models of its own classes; one has planted weights."""

from __future__ import annotations

import json
import random
import warnings

import numpy as np
import pytest

from engine.adapters.forward.weights import BadWeights
from engine.errors import InputTooLong, InvalidInput
from engine.requests import Item, Media, Overflow
from tests.engine.adapters.extracting import Extracting, alike, classes, spans, spec

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from gliner2 import GLiNER2

    from engine.adapters.gliner2 import FAMILY
    from engine.adapters.schemas.jobs import split
    from tests.engine.adapters import tiny_gliner2 as tiny

TEXTS = [
    "Anna Smith lives in Ulm since 1999.",
    "the word on the name!",
    "x.",
    "Policy holder José Álvarez-Núñez, 17b Elm Road! " * 3 + "İstanbul a@b.com.",
    "\U0001f600\U0001f600 naïve\r\ncafé  Oslo?",
]
ASKED = ["person", "place", "the date"]
KINDS = {
    "lstm": {},
    "v2": {"counting_layer": "count_lstm_v2"},
    "experts": {"counting_layer": "count_lstm_moe", "kind": "bert"},
    "mean": {"token_pooling": "mean"},
    "max": {"token_pooling": "max", "kind": "bert", "counting_layer": "count_lstm_v2"},
}
PRODUCT = {
    "properties": {
        "name": {"type": "string", "description": "what it is called"},
        "parts": {"type": "array", "items": {"type": "string"}},
        "size": {"enum": ["big", "very small"]},
        "colours": {"type": "array", "items": {"enum": ["red", "blue"]}},
    }
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    made = {}

    def served(name: str) -> Extracting:
        if name not in made:
            path = tiny.gliner2(tmp_path_factory.mktemp(name), **KINDS[name])
            made[name] = Extracting("gliner2", path)
        return made[name]

    return served


@pytest.fixture(scope="module")
def finder(tmp_path_factory):
    return Extracting("gliner2", tiny.planted(tmp_path_factory.mktemp("planted")))


@pytest.fixture(scope="module")
def find(finder):
    return finder.find


def reference(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GLiNER2.from_pretrained(str(path))


def of(value) -> dict[tuple[int, int], float]:
    """Places and scores of whatever the library or we found for a field."""
    listed = value if isinstance(value, list) else [value] if value else []
    return {(v.get("start", v["text"]), v.get("end")): v.get("score", v.get("confidence")) for v in listed}


@pytest.mark.parametrize("name", KINDS)
def test_entities_are_those_of_the_library(name, served, compared):
    model, seen = served(name), []
    library = reference(model.path)
    described = {"entities": {"person": "somebody", "place": "", "the date": "a day"}}

    for labels, schema, threshold in [(ASKED, None, 0.5), ((), described, 0.35)]:
        ours = model.answers(TEXTS, labels, output_schema=schema, threshold=threshold)
        asked = library.create_schema().entities(
            labels
            or {name: {"description": said} if said else {} for name, said in schema["entities"].items()}
        )
        for text, answer in zip(TEXTS, ours, strict=True):
            theirs = library.extract(text, asked, threshold, include_confidence=True, include_spans=True)
            expected = {
                (e["start"], e["end"], label): e["confidence"]
                for label, listed in theirs["entities"].items()
                for e in listed
            }
            seen += alike(spans(answer), expected)
            assert all(text[e.start : e.end] == e.text for e in answer.entities)
    assert len(seen) > 10
    compared("gliner2", f"tiny {name}", "gliner2", *zip(*seen, strict=True))


@pytest.mark.parametrize("name", ["lstm", "v2", "experts"])
def test_structures_are_those_of_the_library(name, served):
    model, seen = served(name), 0
    library = reference(model.path)
    schema = {"structures": {"product": PRODUCT, "firm": ["name"]}, "entities": ["person"]}
    extra = {"spans": True, "thresholds": {"product.parts": 0.45}}

    ours = model.answers(TEXTS, output_schema=schema, threshold=0.3, extra=extra)

    asked = library.create_schema().entities(["person"]).structure("product")
    asked = asked.field("name", dtype="str", description="what it is called").field("parts", threshold=0.45)
    asked = asked.field("size", dtype="str", choices=["big", "very small"])
    asked = asked.field("colours", choices=["red", "blue"]).structure("firm").field("name", dtype="str")
    for text, answer in zip(TEXTS, ours, strict=True):
        theirs = library.extract(text, asked, 0.3, include_confidence=True, include_spans=True)
        for structure in ("product", "firm"):
            found, expected = answer.data[structure], theirs[structure] or []
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                assert one.keys() == other.keys()
                for field in one:
                    alike(of(one[field]), of(other[field]))
                    seen += len(of(one[field]))
    assert seen > 5


@pytest.mark.parametrize("name", ["lstm", "v2"])
def test_classes_and_relations_are_those_of_the_library(name, served):
    model = served(name)
    library = reference(model.path)
    tasks = {
        "mood": ["good", "bad"],
        "topic": {"labels": {"sport": "games", "war": "none"}, "multi_label": True},
    }
    schema = {"classifications": tasks, "relations": {"works for": "is employed by", "lives in": ""}}

    ours = model.answers(TEXTS, output_schema=schema, threshold=0.3)

    asked = library.create_schema().classification("mood", ["good", "bad"])
    asked = asked.classification("topic", tasks["topic"]["labels"], multi_label=True, cls_threshold=0.3)
    asked = asked.relations({"works for": "is employed by", "lives in": {}})
    related = 0
    for text, answer in zip(TEXTS, ours, strict=True):
        theirs = library.extract(text, asked, 0.3, include_confidence=True, include_spans=True)
        chances = classes(answer)
        expected = {c["label"]: c["confidence"] for c in [theirs["mood"], *theirs["topic"]]}
        assert answer.data["mood"] == theirs["mood"]["label"]
        assert {*answer.data["topic"]} == {c["label"] for c in theirs["topic"]}
        alike({label: chances[label] for label in expected}, expected)
        pairs = {  # the library names a relation with its description
            (r["head"]["text"], r["tail"]["text"], name.partition(":")[0])
            for name, listed in theirs["relation_extraction"].items()
            for r in listed
        }
        assert {(r.head, r.tail, r.relation) for r in answer.relations} == pairs
        related += len(pairs)
    assert related > 2


@pytest.mark.parametrize(("name", "count"), [("v2", 32), ("mean", 8)])
def test_texts_with_other_schemas_share_a_batch_and_stay_what_they_are_alone(name, count, served):
    model, rng = served(name), random.Random(3)
    schemas = [
        {"structures": {"product": PRODUCT}},
        {"classifications": {"mood": ["good", "bad", "none"]}, "relations": ["works for"]},
        {"entities": ["word on"], "structures": {"firm": ["name", "town"]}},
        PRODUCT,
    ]
    jobs = []
    for _ in range(count):
        labels = tuple(rng.sample(["person", "place", "date", "name", "word on", "firm"], rng.randint(1, 5)))
        schema = rng.choice([None, *schemas])
        threshold = rng.choice([0.3, 0.5])
        text = " ".join(rng.choices(["the", "word", "Ulm", "on", "Zork", "in", "7"], k=rng.randint(1, 30)))
        jobs += model.jobs([text], labels, threshold=threshold, output_schema=schema)

    for together, alone in model.with_company(jobs):
        alike(spans(together), spans(alone))
        assert together.data == alone.data
        alike(classes(together), classes(alone))


@pytest.mark.parametrize("place", [10, 383, 384, 389, 700, 1199])
def test_a_field_is_found_wherever_it_stands_in_a_long_text(place, find):
    words = ["word"] * 1200
    words[place] = "Ulm"
    schema = {"structures": {"trip": ["town"]}}

    (trip,) = find(" ".join(words), output_schema=schema, extra={"spans": True}).data["trip"]

    assert (trip["town"]["start"], trip["town"]["end"]) == (5 * place, 5 * place + 3)


def test_an_instance_that_two_windows_see_is_told_once_and_as_whole_as_one_sees_it(find):
    words = ["word"] * 600
    words[200], words[360] = "Ulm", "Oslo"  # the first lies in the first window only
    schema = {"structures": {"trip": {"properties": {"towns": {"type": "array", "items": {}}}}}}

    assert find(" ".join(words), output_schema=schema).data == {"trip": [{"towns": ["Ulm", "Oslo"]}]}


def test_a_json_schema_is_filled_over_all_windows(find):
    text = "Ulm " + "word " * 500 + "Oslo and Zork Blim"
    schema = {
        "title": "letter",
        "properties": {
            "towns": {"type": "array", "items": {"type": "string"}},
            "sender": {"type": ["string", "null"]},
            "trip": {"type": "object", "properties": {"to": {"type": "string"}}},
            "stops": {"type": "array", "items": {"type": "object", "properties": {"at": {"type": "string"}}}},
        },
    }

    data = find(text, output_schema=schema).data

    assert data["towns"] == ["Ulm", "Oslo", "Zork Blim"]
    assert data["sender"] == "Zork Blim"
    assert data["trip"] == {"to": "Zork Blim"}
    assert data["stops"] == [{"at": "Ulm"}, {"at": "Zork Blim"}]
    assert find("word", output_schema=schema).data == {"towns": [], "sender": None, "trip": None, "stops": []}


def test_the_full_stop_that_the_model_reads_is_in_no_answer(find):
    (entity,) = find("in Ulm", "town").entities

    assert (entity.text, entity.start, entity.end) == ("Ulm", 3, 6)


def test_labels_overlap_unless_none_may(find):
    both = find("Ulm", "town", "city").entities
    one = find("Ulm", "town", "city", extra={"flat_ner": True}).entities

    assert [e.label for e in both] == ["town", "city"]
    assert len(one) == 1


def test_an_entry_says_what_is_looked_for(finder):
    answer = finder.saying(labels={"town": "place"}, options={"threshold": 0.9}).find("Zork Blim in Ulm")

    assert [(e.label, e.text) for e in answer.entities] == [("town", "Zork Blim"), ("town", "Ulm")]


def test_a_long_text_is_refused_or_cut_where_that_is_asked(finder):
    long = "word " * 500 + "Ulm"

    (cut,) = finder.jobs([long], ("place",), overflow=Overflow.TRUNCATE)
    (refused,) = finder.jobs([long], ("place",), overflow=Overflow.ERROR)

    assert finder.model.run([cut])[0].entities == ()
    assert cut.usage.truncated == 1
    assert isinstance(refused, InputTooLong)


def test_cost_is_what_the_encoder_reads(finder):
    (short, long) = finder.jobs(["word " * 10, "word " * 1200], ("place",))

    assert short.cost == 8 + len("entities") + 10 + len(".")
    assert long.cost == sum(len(window.ids) for window in long.payload.windows) > 1200


def test_a_long_run_without_a_space_is_split_in_linear_time():
    dots = "." * 30_000
    assert sum(1 for _ in split(f"a {dots} b@c.de")) == 30_002
    assert list(split("İa https://x.y B")) == [("i̇a", 0, 2), ("https://x.y", 3, 14), ("b", 15, 16)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"labels": (" ",)},
        {"labels": ("a",), "instruction": "find it"},
        {"labels": ("a [E] b",)},
        {"labels": ("a",), "threshold": 1.5},
        {"labels": tuple(f"label {i}" for i in range(201))},
        {"labels": tuple("long label " * 8 + str(i) for i in range(200))},
        {"output_schema": {"tables": ["x"]}},
        {"output_schema": {"entities": 3}},
        {"output_schema": {"structures": ["x"]}},
        {"output_schema": {"structures": {"x": {}}}},
        {"output_schema": {"structures": {"x": {"properties": {"a": "text"}}}}},
        {"output_schema": {"properties": {"a": {"type": "number"}}}},
        {"output_schema": {"properties": {"a": {"type": "array", "items": {"type": "array"}}}}},
        {"output_schema": {"properties": {"a": {"enum": [1, 2]}}}},
        {"output_schema": {"properties": {"a": {"properties": {"b": {"properties": {"c": {}}}}}}}},
        {"output_schema": {"classifications": {"mood": []}}},
        {"output_schema": {"classifications": ["mood"]}},
        {"output_schema": {"classifications": {"mood": {"labels": ["a"], "multi_label": "yes"}}}},
        {"extra": {"classifications": {"mood": {"of": ["a"]}}}},
        {"labels": ("a",), "extra": {"spans": 1}},
        {"output_schema": {"relations": [1]}},
    ],
)
def test_options_that_cannot_be_followed_are_refused(options, finder):
    with pytest.raises((InvalidInput, InputTooLong)):
        finder.jobs(["a"], **options)


def test_an_item_that_is_no_text_has_its_error_in_its_place(finder):
    wrong, *good = finder.jobs([Item(images=(Media(b"x"),)), "Ulm", ""], ("a",))

    assert isinstance(wrong, InvalidInput)
    assert [[e.text for e in answer.entities] for answer in finder.model.run(good)] == [["Ulm"], []]


def test_another_architecture_is_refused_by_name(finder, tmp_path):
    config = json.loads((finder.path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architecture": "streams"}))

    with pytest.raises(BadWeights, match="'streams'"):
        FAMILY.preparer(spec("gliner2", tmp_path), tmp_path)


def test_whatever_a_schema_holds_is_read_or_refused(finder):
    rng = random.Random(11)
    words = ["entities", "relations", "classifications", "structures", "properties", "items", "type", "enum"]
    words += ["description", "labels", "multi_label", "title", "array", "string", "object", "a", "", "\ud800"]
    leaves = [None, True, 1, -2.5, float("nan"), b"x", np.zeros(2), np.array("x"), [], {}, *words]

    def made(depth: int) -> object:
        kind = rng.random()
        if depth and kind < 0.6:
            return {rng.choice(words): made(depth - 1) for _ in range(rng.randint(0, 3))}
        if depth and kind < 0.8:
            return [made(depth - 1) for _ in range(rng.randint(0, 3))]
        return rng.choice(leaves)

    read = 0
    for _ in range(1500):
        made_up, extra = made(5), {rng.choice([*words, "thresholds", "spans", "flat_ner"]): made(3)}
        try:
            schema = made_up if isinstance(made_up, dict) else None
            finder.jobs(["a"], ("a",), output_schema=schema, extra=extra)
            read += 1
        except InvalidInput:
            continue
    assert 50 < read < 1450
