"""GLiNER beside the library itself, on tiny models of its own configurations; one has planted weights."""

from __future__ import annotations

import json
import random
import shutil
import warnings

import numpy as np
import pytest
import torch

from engine.adapters.forward.weights import BadWeights
from engine.entry import ModelSpec, Source
from engine.errors import InputTooLong, InvalidInput
from engine.requests import Extracted, ExtractOptions, Item, Media, Overflow, Task

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


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = {}

    def folder(name: str):
        if name not in made:
            path = tmp_path_factory.mktemp(name)
            config = dict(KINDS[name])
            if config.get("labels_encoder"):
                config["labels_encoder"] = str(tiny.encoder(path / "labels", "bert"))
            made[name] = tiny.gliner(path, **config)
        return made[name]

    return folder


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tiny.planted(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def finder(planted):
    model = FAMILY.load(spec(planted), planted, "cpu")
    yield model
    model.unload()


@pytest.fixture(scope="module")
def find(planted, finder):
    preparer = FAMILY.preparer(spec(planted), planted)

    def find(text: str, *labels: str, **options: object) -> Extracted:
        asked = ExtractOptions(labels=labels or ("person", "place"), **options)
        return finder.run(preparer.prepare(Task.EXTRACT, [Item(text=text)], asked))[0]

    return find


def spec(path, **more: object) -> ModelSpec:
    given = {
        "id": "a/b",
        "family": "gliner",
        "tasks": ("extract",),
        "devices": ("cpu",),
        "overflow": "window",
    }
    return ModelSpec(**(given | more), sources=(Source(directory=str(path)),))


def jobs_of(path, texts, labels, entry=None, **options):
    preparer = FAMILY.preparer(entry or spec(path), path)
    return preparer.prepare(
        Task.EXTRACT, [Item(text=text) for text in texts], ExtractOptions(labels=labels, **options)
    )


def reference(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GLiNER.from_pretrained(str(path), local_files_only=True)


def alike(ours, theirs) -> list[tuple[float, float]]:
    """The scores of the same spans with the same labels; those as likely as each other may swap."""
    found = {(e.start, e.end, e.label): e.score for e in ours}
    expected = {(e["start"], e["end"], e["label"]): e["score"] for e in theirs}
    assert found.keys() == expected.keys()
    assert np.allclose([found[span] for span in found], [expected[span] for span in found], atol=1e-4)
    return [(found[span], expected[span]) for span in found]


@pytest.mark.parametrize("name", KINDS)
def test_entities_are_those_of_the_library_whatever_is_asked(name, folder, compared):
    path = folder(name)
    library, model = reference(path), FAMILY.load(spec(path), path, "cpu")
    seen: list[tuple[float, float]] = []

    for flat, multi, threshold in [(True, False, 0.3), (False, True, 0.5), (True, True, 0.45)]:
        extra = {"flat_ner": flat, "multi_label": multi}
        ours = model.run(jobs_of(path, TEXTS, ASKED, threshold=threshold, extra=extra))
        for text, answer in zip(TEXTS, ours, strict=True):
            (theirs,) = library.inference(
                [text], list(ASKED), threshold=threshold, flat_ner=flat, multi_label=multi
            )
            seen += alike(answer.entities, theirs)
            assert all(text[e.start : e.end] == e.text for e in answer.entities)
    if seen:  # two of the random models find nothing, as the library does
        compared("gliner", f"tiny {name}", "gliner", *zip(*seen, strict=True))


@pytest.mark.parametrize("name", ["span", "token", "mixed", "bi", "bi_fused"])
def test_texts_with_other_labels_share_a_batch_and_stay_what_they_are_alone(name, folder):
    path, rng = folder(name), random.Random(3)
    preparer, model = FAMILY.preparer(spec(path), path), FAMILY.load(spec(path), path, "cpu")
    jobs = []
    for _ in range(32):
        labels = tuple(rng.sample(["person", "place", "date", "name", "word on", "firm"], rng.randint(1, 5)))
        asked = ExtractOptions(labels=labels, threshold=rng.choice([0.3, 0.5]))
        text = " ".join(rng.choices(["the", "word", "Ulm", "on", "Zork", "in", "7"], k=rng.randint(1, 60)))
        jobs += preparer.prepare(Task.EXTRACT, [Item(text=text)], asked)

    for together, job in zip(model.run(jobs), jobs, strict=True):
        (alone,) = model.run([job])
        ours, theirs = ({(e.start, e.end, e.label): e.score for e in a.entities} for a in (together, alone))
        assert ours.keys() == theirs.keys()
        assert np.allclose([ours[span] for span in ours], [theirs[span] for span in ours], atol=1e-4)


@pytest.mark.parametrize("place", [10, 383, 384, 389, 700, 1199])
def test_a_name_is_found_wherever_it_stands_in_a_long_text(place, find):
    words = ["word"] * 1200
    words[place] = "Ulm"
    text = " ".join(words)

    (entity,) = find(text).entities

    assert (entity.label, text[entity.start : entity.end]) == ("place", "Ulm")
    assert entity.start == 5 * place


def test_an_entity_is_found_once_and_whole_at_every_place_of_a_seam(planted, finder):
    texts = []
    for place in [*range(316, 322), *range(346, 356), *range(379, 388)]:
        words = ["word"] * 420
        words[place : place + 3] = ["Zork", "the", "Blim"]
        texts.append(" ".join(words))
    jobs = jobs_of(planted, texts, ("person", "place"))

    assert {len(job.payload.windows) for job in jobs} == {2}
    for answer in finder.run(jobs):
        assert [(e.label, e.text) for e in answer.entities] == [("person", "Zork the Blim")]


def test_nested_entities_are_found_when_they_are_asked_for(find):
    text = "word " * 600 + "Zork Blim in Ulm"
    labels = ("person", "name", "place")

    flat = [(e.label, e.text) for e in find(text, *labels).entities]
    nested = [(e.label, e.text) for e in find(text, *labels, extra={"flat_ner": False}).entities]

    assert flat == [("person", "Zork Blim"), ("place", "Ulm")]
    assert nested == [("person", "Zork Blim"), ("name", "Zork"), ("place", "Ulm")]


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


def test_an_entry_says_what_the_model_reads_for_a_name_and_what_is_looked_for(planted, finder):
    entry = spec(planted, labels={"Whoever": "person|name", "town": "place"}, options={"threshold": 0.9})
    jobs = jobs_of(planted, ["Zork Blim in Ulm"], (), entry)

    assert [(e.label, e.text) for e in finder.run(jobs)[0].entities] == [
        ("Whoever", "Zork Blim"),
        ("town", "Ulm"),
    ]


def test_a_schema_may_describe_each_label(planted, finder):
    schema = {"entities": {"town": "place", "people": "person"}}
    jobs = jobs_of(planted, ["Zork Blim in Ulm"], (), output_schema=schema)

    assert [e.label for e in finder.run(jobs)[0].entities] == ["people", "town"]


def test_a_long_text_is_refused_or_cut_where_that_is_asked(planted, finder):
    long = "word " * 500 + "Ulm"

    (cut,) = jobs_of(planted, [long], ("place",), overflow=Overflow.TRUNCATE)
    (refused,) = jobs_of(planted, [long], ("place",), overflow=Overflow.ERROR)

    assert finder.run([cut])[0].entities == ()
    assert cut.usage.truncated == 1
    assert isinstance(refused, InputTooLong)


def test_cost_is_what_the_encoder_reads(planted):
    (short, long) = jobs_of(planted, ["word " * 10, "word " * 1200], ("place",))

    assert short.cost == 10 + len(["<<ENT>>", "place", "<<SEP>>", "[CLS]", "[SEP]"])
    assert long.cost == sum(len(window.ids) for window in long.payload.windows)
    assert long.cost > 1200


def test_vectors_of_labels_are_read_once(folder):
    path = folder("bi")
    model = FAMILY.load(spec(path), path, "cpu")
    network = model._network
    read: list[int] = []
    before = network._read
    network._read = lambda labels: read.append(len(labels)) or before(labels)

    for labels in [("person", "place"), ("place", "person"), ("place", "date")]:
        model.run(jobs_of(path, TEXTS[:2], labels))

    assert read == [2, 1]


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
    path = tiny.gliner(tmp_path, **config)
    library, model = reference(path), FAMILY.load(spec(path), path, "cpu")
    texts, related = TEXTS[:2], ["works for", "lives in"]
    seen: list[tuple[float, float]] = []

    for threshold in (0.02, 0.3):
        ours = model.run(jobs_of(path, texts, ASKED, threshold=threshold, extra={"relations": related}))
        for text, answer in zip(texts, ours, strict=True):
            entities, relations = library.inference(
                [text], list(ASKED), relations=related, threshold=threshold, return_relations=True
            )
            alike(answer.entities, entities[0])
            expected: dict[tuple[object, ...], float] = {}
            for r in relations[0]:  # the library says a pair again for every label that its ends may have
                head, tail = ((r[end]["start"], r[end]["end"], r[end]["text"]) for end in ("head", "tail"))
                if head != tail:
                    key = (head[2], tail[2], r["relation"])
                    expected[key] = max(expected.get(key, 0.0), r["score"])
            found = {(r.head, r.tail, r.relation): r.score for r in answer.relations}
            assert found.keys() == expected.keys()
            assert np.allclose([found[key] for key in found], [expected[key] for key in found], atol=1e-4)
            seen += [(found[key], expected[key]) for key in found]
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
def test_options_that_cannot_be_followed_are_refused(options, planted):
    with pytest.raises((InvalidInput, InputTooLong)):
        FAMILY.preparer(spec(planted), planted).prepare(Task.EXTRACT, [Item(text="a")], options)


def test_an_item_that_is_no_text_has_its_error_in_its_place(planted, finder):
    items = [Item(images=(Media(b"x"),)), Item(text="Ulm")]
    jobs = FAMILY.preparer(spec(planted), planted).prepare(
        Task.EXTRACT, items, ExtractOptions(labels=("place",))
    )

    assert isinstance(jobs[0], InvalidInput)
    assert finder.run(jobs[1:])[0].entities[0].text == "Ulm"


def test_an_older_directory_takes_tokenizer_and_configuration_from_the_encoder_beside_it(planted, tmp_path):
    shutil.copytree(planted, tmp_path, dirs_exist_ok=True)
    shutil.copytree(planted.parent / "base", tmp_path / "encoder")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    config = json.loads((tmp_path / "gliner_config.json").read_text())
    config |= {"encoder_config": None, "model_name": "nobody/nothing"}
    (tmp_path / "gliner_config.json").write_text(json.dumps(config))
    model = FAMILY.load(spec(tmp_path), tmp_path, "cpu")

    (answer,) = model.run(jobs_of(tmp_path, ["Zork Blim in Ulm"], ("person", "place")))

    assert [(e.label, e.text) for e in answer.entities] == [("person", "Zork Blim"), ("place", "Ulm")]


def test_a_pickle_is_not_opened_and_it_is_said_what_to_do(planted, tmp_path):
    (tmp_path / "gliner_config.json").write_bytes((planted / "gliner_config.json").read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes(b"anything")

    with pytest.raises(BadWeights, match="torch_checkpoint"):
        FAMILY.footprint(spec(tmp_path), tmp_path)


def test_a_kind_that_does_not_run_here_is_refused_by_name(planted, tmp_path):
    config = json.loads((planted / "gliner_config.json").read_text())
    (tmp_path / "gliner_config.json").write_text(json.dumps(config | {"labels_decoder": "gpt2"}))

    with pytest.raises(BadWeights, match="decoder that writes labels"):
        FAMILY.preparer(spec(tmp_path), tmp_path)
