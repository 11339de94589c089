from __future__ import annotations

import warnings
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
import transformers as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import catalog
from engine.adapters.forward import weights as plumbing
from engine.adapters.token_classifier import FAMILY, TokenClassifier, tagger
from engine.errors import InferenceFailed, InputTooLong, InvalidInput
from engine.requests import Extracted, ExtractOptions, Item, Media, Overflow, Task
from tests.weights import CATALOG, weights

ID = "nationaldesignstudio/rampart"
SPEC = catalog.load([CATALOG]).resolve(ID)[0]
PLAIN = SPEC.model_copy(update={"options": {}, "max_tokens": 512})
LETTER = (
    "My name is Maria Gonzalez and I live at 62 Baker Street, Springfield, IL 62704. "
    "Call +1 (555) 010-9999 or mail maria.gonzalez@example.com."
)
TEXTS = [
    LETTER,
    "Policy holder José Álvarez-Núñez, 17b Elm Road, Unit 4, Leeds. Driver licence D1234567.",
    "\U0001f600\U0001f600 Customer:\r\nAnna O'Brien, passport X1234567\r\n\U0001f1e9\U0001f1ea done",
    "My tax id is 12-3456789, routing number 021000021.",
    "nothing here",
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model():
    model = FAMILY.load(SPEC, weights(ID), "cpu")
    yield model
    model.unload()


@pytest.fixture(scope="module")
def preparer():
    return FAMILY.preparer(SPEC, weights(ID))


@pytest.fixture(scope="module")
def extract(model, preparer):
    def extract(texts: list[str], *labels: str, **options: object) -> list[Extracted]:
        items = [Item(text=text) for text in texts]
        return model.run(preparer.prepare(Task.EXTRACT, items, ExtractOptions(labels=labels, **options)))

    return extract


def found(extracted: Extracted) -> list[tuple[str, str]]:
    return [(entity.label, entity.text) for entity in extracted.entities]


def test_personal_data_is_found_and_split_addresses_are_whole(extract):
    assert found(extract([LETTER])[0]) == [
        ("GIVEN_NAME", "Maria"),
        ("SURNAME", "Gonzalez"),
        ("BUILDING_NUMBER", "62"),
        ("STREET_NAME", "Baker Street"),
        ("CITY", "Springfield"),
        ("STATE", "IL"),
        ("ZIP_CODE", "62704"),
        ("PHONE", "(555) 010-9999"),
        ("EMAIL", "maria.gonzalez@example.com"),
    ]


def test_asked_labels_come_back_as_they_were_spelled(extract):
    assert found(extract([LETTER], "Email Address", "name", "NAME")[0]) == [
        ("name", "Maria"),
        ("name", "Gonzalez"),
        ("Email Address", "maria.gonzalez@example.com"),
    ]


@pytest.mark.parametrize("aggregation", ["simple", "first", "average", "max"])
def test_spans_and_scores_are_those_of_the_reference_pipeline(aggregation, model, compared):
    spec = PLAIN.model_copy(update={"options": {"aggregation": aggregation}})
    jobs = FAMILY.preparer(spec, weights(ID)).prepare(
        Task.EXTRACT, [Item(text=text) for text in TEXTS], ExtractOptions()
    )
    ours = TokenClassifier(model._model, tagger(spec, model._model.config.id2label)).run(jobs)
    reference = tf.pipeline(
        "token-classification",
        model=tf.AutoModelForTokenClassification.from_pretrained(weights(ID)),
        tokenizer=tf.AutoTokenizer.from_pretrained(weights(ID)),
        aggregation_strategy=aggregation,
    )

    seen = []
    for text, answer in zip(TEXTS, ours, strict=True):
        theirs = reference(text)
        assert [(e.label, e.start, e.end) for e in answer.entities] == [
            (e["entity_group"], e["start"], e["end"]) for e in theirs
        ]
        assert np.allclose([e.score for e in answer.entities], [e["score"] for e in theirs], atol=1e-4)
        seen.append(([e.score for e in answer.entities], [e["score"] for e in theirs]))
    name = f"{ID}, {aggregation}"
    compared("token_classifier", name, "transformers", *zip(*seen, strict=True), weights="real")


def test_a_batch_gives_what_each_text_gives_alone(extract):
    for together, text in zip(extract(TEXTS), TEXTS, strict=True):
        (alone,) = extract([text])
        assert [(e.label, e.start, e.end) for e in together.entities] == [
            (e.label, e.start, e.end) for e in alone.entities
        ]
        scores = [[e.score for e in answer.entities] for answer in (together, alone)]
        assert np.allclose(*scores, atol=1e-5)


def test_a_long_text_gives_each_entity_once_and_whole(extract, preparer):
    line = "Customer {}: Maria Gonzalez, 62 Baker Street, Springfield. The rest is of no interest.\r\n"
    text = "\U0001f4c4 " + "".join(line.format(i) for i in range(60))

    entities = extract([text], "name", "street")[0].entities

    (job,) = preparer.prepare(Task.EXTRACT, [Item(text=text)], ExtractOptions())
    assert len(job.payload.windows) > 10
    assert Counter(e.text for e in entities) == {"Maria": 60, "Gonzalez": 60, "Baker Street": 60}
    assert all(text[e.start : e.end] == e.text for e in entities)
    assert all(a.end <= b.start for a, b in pairwise(entities))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "Maria",
                "Jose\u0301",
                "Gonza\u0301lez",
                "\U0001f600",
                "\r\n",
                " ",
                "\u200d",
                "anna@foo.org",
                "\0",
                "ﬁ",
                "İ",
            ]
        ),
        max_size=40,
    )
)
def test_an_entity_is_the_text_at_its_offsets(extract, parts):
    text = " ".join(parts)

    for entity in extract([text])[0].entities:
        assert text[entity.start : entity.end] == entity.text
        assert entity.text.strip() == entity.text != ""


def test_a_combining_mark_stays_with_its_name(extract):
    text = "My name is Jose\u0301 Gonza\u0301lez and I live in Leeds."

    assert ("SURNAME", "Gonza\u0301lez") in found(extract([text])[0])
    assert ("GIVEN_NAME", "Jose\u0301") in found(extract([text])[0])


def test_a_threshold_leaves_out_what_the_model_is_less_sure_of(extract):
    assert ("STATE", "IL") in found(extract([LETTER])[0])
    assert ("STATE", "IL") not in found(extract([LETTER], threshold=0.9)[0])


def test_too_long_is_cut_or_refused_when_asked(preparer):
    items = [Item(text="Maria " * 500)]

    (cut,) = preparer.prepare(Task.EXTRACT, items, ExtractOptions(overflow=Overflow.TRUNCATE))
    (refused,) = preparer.prepare(Task.EXTRACT, items, ExtractOptions(overflow=Overflow.ERROR))

    assert (cut.cost, cut.usage.input_tokens, cut.usage.truncated) == (128, 128, 1)
    assert isinstance(refused, InputTooLong)
    assert refused.item == 0


def test_wrong_items_fail_alone_and_costs_are_tokens(preparer, model):
    items = [Item(text="Maria"), Item(images=(Media(b""),)), Item(text="\ud800"), Item(text="")]

    first, *bad, empty = preparer.prepare(Task.EXTRACT, items, ExtractOptions())

    assert (first.cost, empty.cost) == (3, 1)
    assert [(type(error), error.item) for error in bad] == [(InvalidInput, 1), (InvalidInput, 2)]
    assert model.run([empty]) == [Extracted()]


def test_numbers_that_are_not_finite_fail_the_job(model, preparer):
    jobs = preparer.prepare(Task.EXTRACT, [Item(text=text) for text in TEXTS[:2]], ExtractOptions())
    broken = FAMILY.load(SPEC, weights(ID), "cpu")
    word = int(jobs[0].payload.windows[0].ids[1])
    assert word not in jobs[1].payload.windows[0].ids
    broken._model.get_input_embeddings().weight[word] = torch.nan

    failed, fine = broken.run(jobs)

    assert isinstance(failed, InferenceFailed)
    assert found(fine) == found(model.run(jobs)[1])
    broken.unload()


SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
WIDE = {**SMALL, "intermediate_size": 64, "num_labels": 3, "pad_token_id": 1}
CONFIGS = [
    tf.RobertaConfig(**WIDE),
    tf.ElectraConfig(**WIDE, embedding_size=16),
    tf.DistilBertConfig(vocab_size=99, dim=32, n_layers=2, n_heads=2, hidden_dim=64, num_labels=3),
    tf.ModernBertConfig(**WIDE, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3),
    tf.DebertaV2Config(**WIDE, relative_attention=True, pos_att_type=["c2p", "p2c"]),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_the_heads_of_other_families_are_applied_as_the_library_does(config, tmp_path, compared):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit of DeBERTa is deprecated
        whole = tf.AutoModelForTokenClassification.from_config(config).eval()
        whole.save_pretrained(tmp_path)
        ids = torch.randint(5, 99, (17,))
        expected = whole(input_ids=ids[None]).logits[0]
        loaded = plumbing.load(tf.AutoModelForTokenClassification, tmp_path, "cpu", torch.float32)
        ours = TokenClassifier(loaded, tagger(PLAIN, {0: "O", 1: "A", 2: "B"}))
        hidden = ours._encoder.hidden([ids.numpy().astype(np.int32)])

    found = ours._head(hidden.states)
    assert torch.allclose(found, expected, atol=1e-5)
    name = f"tiny {config.model_type}"
    compared("token_classifier", name, "transformers", found.detach(), expected.detach())
