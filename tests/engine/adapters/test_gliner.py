"""GLiNER beside the library itself, on tiny models of its own configurations; one has planted weights."""

from __future__ import annotations

import json
import random
import shutil
import warnings

import pytest

from engine.adapters.forward.weights import BadWeights
from engine.errors import InputTooLong, InvalidInput
from engine.requests import ExtractOptions, Item, Media, Overflow, Task
from tests.engine.adapters.extracting import Extracting, alike, spans, spec

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from gliner import GLiNER

    from engine.adapters.gliner import FAMILY
    from tests.engine.adapters import tiny_gliner as tiny

TEXTS = [
    "Anna Smith lives in Ulm since 1999.",
    "the word on the name",
    "x",
    "",
    "Policy holder José Álvarez-Núñez, 17b Elm Road! " * 3,
    "\U0001f600\U0001f600 naïve\r\ncafé  Oslo",
]
ASKED = ("person", "place", "date")
KINDS = {
    "span": {},
    "token": {"span_mode": "token_level"},
    "bert": {"kind": "bert"},
    "mean": {"subtoken_pooling": "mean"},
    "max": {"subtoken_pooling": "max", "num_rnn_layers": 0},
    "last": {"subtoken_pooling": "last", "span_mode": "marker"},
    "mixed": {"span_mode": "markerV1", "embed_ent_token": False},
    "bi": {"labels_encoder": True},
    "bi_token": {"labels_encoder": True, "span_mode": "token_level"},
    "bi_fused": {"labels_encoder": True, "post_fusion_schema": "l2l-l2t-t2t"},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    made = {}

    def served(name: str) -> Extracting:
        if name not in made:
            path = tmp_path_factory.mktemp(name)
            config = dict(KINDS[name])
            if config.get("labels_encoder"):
                config["labels_encoder"] = str(tiny.encoder(path / "labels", "bert"))
            made[name] = Extracting("gliner", tiny.gliner(path, **config))
        return made[name]

    return served


@pytest.fixture(scope="module")
def finder(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Extracting("gliner", tiny.planted(tmp_path_factory.mktemp("planted")))


@pytest.fixture(scope="module")
def find(finder):
    def find(text: str, *labels: str, **options: object):
        return finder.find(text, *(labels or ("person", "place")), **options)

    return find


def reference(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GLiNER.from_pretrained(str(path), local_files_only=True)


def theirs_by_place(entities) -> dict:
    return {(e["start"], e["end"], e["label"]): e["score"] for e in entities}


@pytest.mark.parametrize("name", KINDS)
def test_entities_are_those_of_the_library_whatever_is_asked(name, served, compared):
    model = served(name)
    library = reference(model.path)
    seen: list[tuple[float, float]] = []

    for flat, multi, threshold in [(True, False, 0.3), (False, True, 0.5), (True, True, 0.45)]:
        extra = {"flat_ner": flat, "multi_label": multi}
        ours = model.answers(TEXTS, ASKED, threshold=threshold, extra=extra)
        for text, answer in zip(TEXTS, ours, strict=True):
            (theirs,) = library.inference(
                [text], list(ASKED), threshold=threshold, flat_ner=flat, multi_label=multi
            )
            seen += alike(spans(answer), theirs_by_place(theirs))
            assert all(text[e.start : e.end] == e.text for e in answer.entities)
    if seen:  # two of the random models find nothing, as the library does
        compared("gliner", f"tiny {name}", "gliner", *zip(*seen, strict=True))


@pytest.mark.parametrize("name", ["span", "token", "mixed", "bi", "bi_fused"])
def test_texts_with_other_labels_share_a_batch_and_stay_what_they_are_alone(name, served):
    model, rng, jobs = served(name), random.Random(3), []
    for _ in range(32):
        labels = tuple(rng.sample(["person", "place", "date", "name", "word on", "firm"], rng.randint(1, 5)))
        threshold = rng.choice([0.3, 0.5])
        text = " ".join(rng.choices(["the", "word", "Ulm", "on", "Zork", "in", "7"], k=rng.randint(1, 60)))
        jobs += model.jobs([text], labels, threshold=threshold)

    for together, alone in model.with_company(jobs):
        alike(spans(together), spans(alone))


def test_neighbours_of_a_label_are_one_entity_where_that_is_asked(find):
    text = "word Ulm Ulm, Ulm  Ulm in Zork Blim Ulm"

    apart = [e.text for e in find(text).entities]
    whole = find(text, extra={"merge_adjacent": True}).entities

    assert apart == ["Ulm", "Ulm", "Ulm", "Ulm", "Zork Blim", "Ulm"]
    assert [e.text for e in whole] == ["Ulm Ulm", "Ulm", "Ulm", "Zork Blim", "Ulm"]
    assert [text[e.start : e.end] for e in whole] == [e.text for e in whole]


def test_a_label_may_have_a_threshold_of_its_own(find):
    text = "Zork Blim in Ulm"

    (score,) = [e.score for e in find(text, "place").entities]
    found = find(text, "person", "place", extra={"thresholds": {"place": score + 1e-4}}).entities

    assert [e.label for e in found] == ["person"]


def test_an_entry_says_what_the_model_reads_for_a_name_and_what_is_looked_for(finder):
    entry = {"labels": {"Whoever": "person|name", "town": "place"}, "options": {"threshold": 0.9}}

    assert [(e.label, e.text) for e in finder.saying(**entry).find("Zork Blim in Ulm").entities] == [
        ("Whoever", "Zork Blim"),
        ("town", "Ulm"),
    ]


def test_a_schema_may_describe_each_label(finder):
    schema = {"entities": {"town": "place", "people": "person"}}

    assert [e.label for e in finder.find("Zork Blim in Ulm", output_schema=schema).entities] == [
        "people",
        "town",
    ]


def test_a_long_text_is_refused_or_cut_where_that_is_asked(finder):
    long = "word " * 500 + "Ulm"

    (cut,) = finder.jobs([long], ("place",), overflow=Overflow.TRUNCATE)
    (refused,) = finder.jobs([long], ("place",), overflow=Overflow.ERROR)

    assert finder.model.run([cut])[0].entities == ()
    assert cut.usage.truncated == 1
    assert isinstance(refused, InputTooLong)


def test_cost_is_what_the_encoder_reads(finder):
    (short, long) = finder.jobs(["word " * 10, "word " * 1200], ("place",))

    assert short.cost == 10 + len(["<<ENT>>", "place", "<<SEP>>", "[CLS]", "[SEP]"])
    assert long.cost == sum(len(window.ids) for window in long.payload.windows)
    assert long.cost > 1200


def test_vectors_of_labels_are_read_once(served):
    model = served("bi")
    known = model.model._network._known
    read: list[int] = []
    before, known._read = known._read, lambda labels: read.append(len(labels)) or before(labels)

    for labels in [("one", "two"), ("two", "one"), ("two", "three")]:
        model.answers(TEXTS[:2], labels)

    assert read == [2, 1]
    known._read = before


def test_a_label_that_its_own_encoder_cannot_read_is_refused(served):
    with pytest.raises(InputTooLong, match="512 at once"):
        served("bi").jobs(["a"], ("place", "w " * 600))


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("pairs", {"relations_layer": "none"}),
        ("near", {"relations_layer": "dot"}),
        ("triples", {"relations_layer": "none", "triples_layer": "DistMult"}),
        ("tokens", {"relations_layer": "none", "span_mode": "token_level"}),
    ],
)
def test_relations_are_those_of_the_library(name, config, tmp_path, compared):
    model = Extracting("gliner", tiny.gliner(tmp_path, **config))
    library = reference(model.path)
    texts, related = TEXTS[:2], ["works for", "lives in"]
    seen: list[tuple[float, float]] = []

    for threshold in (0.02, 0.3):
        ours = model.answers(texts, ASKED, threshold=threshold, extra={"relations": related})
        for text, answer in zip(texts, ours, strict=True):
            entities, relations = library.inference(
                [text], list(ASKED), relations=related, threshold=threshold, return_relations=True
            )
            alike(spans(answer), theirs_by_place(entities[0]))
            expected: dict[tuple[object, ...], float] = {}
            for r in relations[0]:  # the library says a pair again for every label that its ends may have
                head, tail = ((r[end]["start"], r[end]["end"], r[end]["text"]) for end in ("head", "tail"))
                if head != tail:
                    key = (head[2], tail[2], r["relation"])
                    expected[key] = max(expected.get(key, 0.0), r["score"])
            found = {(r.head, r.tail, r.relation): r.score for r in answer.relations}
            seen += alike(found, expected)
    assert seen
    compared("gliner", f"tiny relations, {name}", "gliner", *zip(*seen, strict=True))


@pytest.mark.parametrize(
    "options",
    [
        ExtractOptions(),
        ExtractOptions(labels=(" ",)),
        ExtractOptions(labels=("a",), instruction="find it"),
        ExtractOptions(labels=("a",), output_schema={"tables": ["x"]}),
        ExtractOptions(labels=("a",), threshold=1.5),
        ExtractOptions(labels=("a",), extra={"thresholds": [1]}),
        ExtractOptions(labels=("a",), extra={"flat_ner": "no"}),
        ExtractOptions(labels=("a",), extra={"merge_adjacent": 1}),
        ExtractOptions(labels=("a",), extra={"relations": ["works for"]}),
        ExtractOptions(labels=("a <<ENT>> b",)),
        ExtractOptions(labels=("\ud800",)),
        ExtractOptions(labels=tuple(f"the label number {i}" for i in range(900))),
    ],
)
def test_options_that_cannot_be_followed_are_refused(options, finder):
    with pytest.raises((InvalidInput, InputTooLong)):
        finder.preparer.prepare(Task.EXTRACT, [Item(text="a")], options)


def test_an_item_that_is_no_text_has_its_error_in_its_place(finder):
    jobs = finder.jobs([Item(images=(Media(b"x"),)), "Ulm"], ("place",))

    assert isinstance(jobs[0], InvalidInput)
    assert finder.model.run(jobs[1:])[0].entities[0].text == "Ulm"


def test_an_older_directory_takes_tokenizer_and_configuration_from_the_encoder_beside_it(finder, tmp_path):
    shutil.copytree(finder.path, tmp_path, dirs_exist_ok=True)
    shutil.copytree(finder.path.parent / "base", tmp_path / "encoder")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    config = json.loads((tmp_path / "gliner_config.json").read_text())
    config |= {"encoder_config": None, "model_name": "nobody/nothing"}
    (tmp_path / "gliner_config.json").write_text(json.dumps(config))

    answer = Extracting("gliner", tmp_path).find("Zork Blim in Ulm", "person", "place")

    assert [(e.label, e.text) for e in answer.entities] == [("person", "Zork Blim"), ("place", "Ulm")]


def test_a_pickle_is_not_opened_and_it_is_said_what_to_do(finder, tmp_path):
    (tmp_path / "gliner_config.json").write_bytes((finder.path / "gliner_config.json").read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes(b"anything")

    with pytest.raises(BadWeights, match="torch_checkpoint"):
        FAMILY.footprint(spec("gliner", tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"labels_decoder": "gpt2"}, "decoder that writes labels"),
        ({"words_splitter_type": "stanza"}, "by stanza, which fetches models"),
        ({"words_splitter_type": "mecab"}, "by mecab, which is not installed"),
    ],
)
def test_a_kind_that_does_not_run_here_is_refused_by_name(wrong, named, finder, tmp_path):
    shutil.copytree(finder.path, tmp_path, dirs_exist_ok=True)
    config = json.loads((finder.path / "gliner_config.json").read_text())
    (tmp_path / "gliner_config.json").write_text(json.dumps(config | wrong))

    with pytest.raises(BadWeights, match=named):
        FAMILY.preparer(spec("gliner", tmp_path), tmp_path)
