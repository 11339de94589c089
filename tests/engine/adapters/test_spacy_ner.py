from __future__ import annotations

import random
import time
from itertools import pairwise
from pathlib import Path

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st

from engine import catalog
from engine.adapters.spacy_ner import FAMILY, LONGEST_RUN, Bounded, pieces
from engine.errors import InvalidInput
from engine.requests import Extracted, ExtractOptions, Item, Media, Task
from tests.weights import weights

ID = "spacy/en_core_web_sm"
SPEC = catalog.load([Path(__file__).parents[3] / "catalog"]).resolve(ID)[0]
INVOICE = "Invoice INV-4471 was issued by Northwind Logistics on 14 March 2026."


@pytest.fixture(scope="module")
def preparer():
    return FAMILY.preparer(SPEC, weights(ID))


@pytest.fixture(scope="module")
def model():
    model = FAMILY.load(SPEC, weights(ID), "cpu")
    yield model
    model.unload()


@pytest.fixture
def extract(preparer, model):
    def extract(texts: list[str], *labels: str) -> list[Extracted]:
        jobs = preparer.prepare(Task.EXTRACT, [Item(text=t) for t in texts], ExtractOptions(labels=labels))
        return model.run(jobs)

    return extract


def found(extracted: Extracted) -> list[tuple[str, str, int | None, int | None]]:
    return [(e.text, e.label, e.start, e.end) for e in extracted.entities]


def test_the_invoice_gives_its_issuer_and_its_date(extract):
    entities = found(extract([INVOICE], "organization", "date", "amount")[0])

    assert ("Northwind Logistics", "organization", 31, 50) in entities
    assert ("14 March 2026", "date", 54, 67) in entities
    assert {label for _, label, _, _ in entities} <= {"organization", "date", "amount"}


def test_only_what_is_asked_is_given_under_the_name_that_was_asked(extract):
    text = "Angela Merkel paid $5,000 to Siemens in Berlin on 3 March 2015."

    assert found(extract([text], "Amount", "PLACE")[0]) == [
        ("5,000", "Amount", 20, 25),
        ("Berlin", "PLACE", 40, 46),
    ]
    assert [label for _, label, _, _ in found(extract([text])[0])] == [
        "PERSON",
        "MONEY",
        "ORG",
        "GPE",
        "DATE",
    ]


def test_offsets_count_code_points_of_twenty_sentences(extract):
    random.seed(7)
    names = ["Northwind Logistics", "Siemens", "Microsoft", "Goldman Sachs"]
    before = [
        "",
        "\U0001f600 ",
        "caf\u0065\u0301 \U0001f1e9\U0001f1ea ",
        "line\r\n\r\n",
        "\U00020bb7 \u200d ",
    ]
    texts = [
        f"{b}The invoice was issued by {n} on {d} March 2026.\r\n\U0001f680"
        for b, n, d in zip(before * 4, names * 5, range(1, 21), strict=True)
    ]
    labels = ["date", "organization", "DATE", "organization", "amount"]

    for text, name in zip(texts, names * 5, strict=True):
        random.shuffle(labels)
        entities = extract([text], *labels)[0].entities
        assert all(text[e.start : e.end] == e.text for e in entities)
        assert name in [e.text for e in entities]
        assert any(e.text.endswith("March 2026") for e in entities)


def test_a_batch_gives_what_each_text_gives_alone(extract):
    texts = [INVOICE, "", "   ", "Berlin is in Germany.", "a\0b", "x" * 5000]

    assert extract(texts) == [extract([text])[0] for text in texts]


def test_a_long_text_names_each_entity_once_and_whole(extract):
    sentence = "Invoice {} was issued by Northwind Logistics on 14 March 2026. "
    text = "".join(sentence.format(i) for i in range(250))

    entities = extract([text], "organization", "date")[0].entities

    assert len(text) > 3 * 4000
    assert [e.start for e in entities if e.text == "Northwind Logistics"] == [
        at for at in range(len(text)) if text.startswith("Northwind Logistics", at)
    ]
    assert all(text[e.start : e.end] == e.text for e in entities)
    assert all(a.end <= b.start for a, b in pairwise(entities))


def test_cost_counts_the_pipelines_tokens(preparer, model):
    texts = [INVOICE, "", "word " * 3000]
    jobs = preparer.prepare(Task.EXTRACT, [Item(text=t) for t in texts], ExtractOptions())

    assert [job.cost for job in jobs] == [12, 1, 3000]
    assert [job.usage.input_tokens for job in jobs] == [12, 0, 3000]


def test_a_wrong_item_fails_alone_and_a_wrong_label_fails_the_request(preparer):
    items = [Item(text="a"), Item(images=(Media(b""),)), Item(text="\ud800")]

    good, *bad = preparer.prepare(Task.EXTRACT, items, ExtractOptions())

    assert good.cost == 1
    assert [type(error) for error in bad] == [InvalidInput, InvalidInput]
    with pytest.raises(InvalidInput, match="'flavour'; it can give: amount, CARDINAL, city"):
        preparer.prepare(Task.EXTRACT, items, ExtractOptions(labels=("flavour",)))


def test_new_words_are_forgotten_after_a_batch(extract, model):
    extract(["warm up"])
    before = len(model._pipeline.vocab.strings)

    extract([" ".join(f"neverseen{i}" for i in range(500))])

    assert len(model._pipeline.vocab.strings) == before


def test_the_footprint_is_near_what_the_pipeline_takes():
    footprint = FAMILY.footprint(SPEC, weights(ID))

    assert 30e6 < footprint.weights_bytes < 60e6


@given(st.text(alphabet="ab \n", max_size=400), st.integers(20, 60))
def test_pieces_answer_for_every_place_once_and_cut_no_word(text, most):
    cut = pieces(text, most, overlap=5)

    answered = [range(p.first, p.last) for p in cut]
    assert [i for span in answered for i in span] == list(range(len(text)))
    for p in cut:
        assert text[p.start : p.start + len(p.text)] == p.text
        assert len(p.text) <= most
        assert p.start <= p.first <= p.last <= p.start + len(p.text)


@pytest.mark.parametrize("char", ["$", "(", '"', "x"])
def test_a_long_run_without_white_space_takes_no_time_that_is_quadratic_in_it(preparer, char):
    """30,000 brackets took spaCy's tokenizer half a minute, and nobody else had the interpreter."""
    began = time.process_time()

    preparer.prepare(Task.EXTRACT, [Item(text=f"Jane Doe. {char * 30_000} Bye.")], ExtractOptions())

    assert time.process_time() - began < 3


PLAIN = spacy.blank("en")


@given(st.text(alphabet="ab( $'\n.é", max_size=400))
def test_what_is_cut_is_put_together_again(text):
    cut = Bounded(PLAIN.tokenizer)(text)

    assert cut.text == text
    if max(map(len, text.split()), default=0) <= LONGEST_RUN:
        assert [t.text for t in cut] == [t.text for t in PLAIN(text)]


def test_entities_are_those_of_the_library(extract, compared):
    library = spacy.load(weights(ID))
    texts = [INVOICE, "Angela Merkel paid $5,000 to Siemens in Berlin on 3 March 2015.", "Nothing here.", ""]
    expected = [[(e.text, e.start_char, e.end_char) for e in library(text).ents] for text in texts]

    together = [[(e.text, e.start, e.end) for e in answer.entities] for answer in extract(texts)]

    alone = [[(e.text, e.start, e.end) for e in extract([text])[0].entities] for text in texts]
    told = [list(map(str, each)) for each in (together, expected, alone)]
    compared("spacy_ner", ID, f"spacy {spacy.__version__}", *told, weights="real")
    assert together == expected == alone
    assert sum(map(len, expected)) > 5
