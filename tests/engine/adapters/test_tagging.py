from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.adapters.labelling.tagging import Found, Tagger, Tokens

BIO = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG"]
BILOU = ["O", "B-PER", "I-PER", "L-PER", "U-PER"]


def tokens(text: str, pieces: str) -> Tokens:
    """`pieces` is the text with `|` inside words where the tokenizer cuts them."""
    offsets, words, at = [], [], 0
    for number, word in enumerate(pieces.split()):
        for piece in word.split("|"):
            at = text.index(piece, at)
            offsets.append((at, at + len(piece)))
            words.append(number)
            at += len(piece)
    return Tokens(np.array(offsets, np.int32).reshape(-1, 2), np.array(words, np.int32))


def scores(names: list[str], said: str) -> np.ndarray:
    """One row a token: `said` names its label, with 0.9 or the number behind a colon."""
    rows = []
    for word in said.split():
        label, _, sure = word.partition(":")
        row = np.full(len(names), (1 - float(sure or 0.9)) / (len(names) - 1), np.float32)
        row[names.index(label)] = float(sure or 0.9)
        rows.append(row)
    return np.array(rows, np.float32).reshape(-1, len(names))


def spans(text: str, pieces: str, names: list[str], said: str, **options: object) -> list[tuple[str, str]]:
    found = Tagger(names, **options).spans(text, tokens(text, pieces), scores(names, said))
    return [(f.label, text[f.start : f.end]) for f in found]


@pytest.mark.parametrize(
    ("names", "said", "expected"),
    [
        (BIO, "B-PER I-PER O B-ORG", [("PER", "Ann Lee"), ("ORG", "ACME")]),
        (BIO, "B-PER B-PER O I-ORG", [("PER", "Ann"), ("PER", "Lee"), ("ORG", "ACME")]),
        (BIO, "I-PER I-ORG O O", [("PER", "Ann"), ("ORG", "Lee")]),
        (BILOU, "B-PER L-PER O U-PER", [("PER", "Ann Lee"), ("PER", "ACME")]),
        (BILOU, "U-PER I-PER L-PER U-PER", [("PER", "Ann"), ("PER", "Lee of"), ("PER", "ACME")]),
        (["O", "PER", "B"], "PER PER O B", [("PER", "Ann Lee"), ("B", "ACME")]),
        (["O", "x-PER", "I-x"], "x-PER x-PER O I-x", [("x-PER", "Ann Lee"), ("I-x", "ACME")]),
        (BIO, "O O O O", []),
    ],
)
def test_schemes_group_as_they_mean(names, said, expected):
    assert spans("Ann Lee of ACME", "Ann Lee of ACME", names, said) == expected


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("simple", [("PER", "Gon"), ("ORG", "zal"), ("PER", "ez")]),
        ("first", [("PER", "Gonzalez")]),
        ("max", [("ORG", "Gonzalez")]),
        ("average", [("PER", "Gonzalez")]),
    ],
)
def test_the_tokens_of_a_word_agree_as_the_aggregation_says(aggregation, expected):
    said = "B-PER:0.8 B-ORG:0.95 B-PER:0.8"

    assert spans("Gonzalez", "Gon|zal|ez", BIO, said, aggregation=aggregation) == expected


def test_a_score_is_the_mean_over_the_words():
    (found,) = Tagger(BIO).spans("Ann Lee", tokens("Ann Lee", "Ann Lee"), scores(BIO, "B-PER:0.6 I-PER:0.8"))

    assert found.score == pytest.approx(0.7)


def test_a_tokenizer_without_words_is_cut_at_white_space():
    text = "Ann Lee"
    whole = Tokens(np.array([(0, 3), (3, 7)], np.int32), np.zeros(2, np.int32))

    found = Tagger(BIO).spans(text, whole, scores(BIO, "B-PER B-ORG"))

    assert [(f.label, text[f.start : f.end]) for f in found] == [("PER", "Ann"), ("ORG", "Lee")]


def test_a_stripped_accent_belongs_to_its_letter():
    text = "Jose\u0301 ran"
    stripped = Tokens(np.array([(0, 4), (6, 9)], np.int32), np.array([0, 1], np.int32))

    (found,) = Tagger(BIO).spans(text, stripped, scores(BIO, "B-PER O"))

    assert text[found.start : found.end] == "Jose\u0301"


def test_a_character_that_was_taken_apart_is_in_one_span_only():
    text = "\ufb01x"  # one character for f and i
    apart = Tokens(np.array([(0, 1), (0, 2)], np.int32), np.array([0, 1], np.int32))

    found = Tagger(BIO).spans(text, apart, scores(BIO, "B-PER B-ORG"))

    assert [(f.label, f.start, f.end) for f in found] == [("PER", 0, 1), ("ORG", 1, 2)]


def test_pieces_are_joined_over_their_labels_own_characters_only():
    names = ["O", "B-MAIL", "I-MAIL", "B-PER", "I-PER"]
    text = "a@b.c,d@e Ann Lee"
    pieces = "a|@|b.c|,|d|@|e Ann Lee"
    said = "B-MAIL O B-MAIL O B-MAIL O B-MAIL B-PER B-PER"

    assert spans(text, pieces, names, said, aggregation="simple", merge={"MAIL": "@."}) == [
        ("MAIL", "a@b.c"),
        ("MAIL", "d@e"),
        ("PER", "Ann"),
        ("PER", "Lee"),
    ]


def test_options_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="aggregation is one of"):
        Tagger(BIO, "best")
    with pytest.raises(ValueError, match="merge names 'MAIL'"):
        Tagger(BIO, "first", {"MAIL": "."})


@given(
    st.text("ab \u0301\U0001f600\r\n", max_size=30),
    st.data(),
    st.sampled_from(["simple", "first", "average", "max"]),
)
def test_spans_are_in_order_inside_the_text_and_never_blank(text, data, aggregation):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    offsets = np.array(list(pairwise(cuts)), np.int32).reshape(-1, 2)
    count = len(offsets)
    words = data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count).map(sorted))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    chances = rng.dirichlet(np.ones(len(BIO)), count).astype(np.float32).reshape(count, len(BIO))

    found = Tagger(BIO, aggregation, {"PER": "a "}).spans(
        text, Tokens(offsets, np.array(words, np.int32)), chances
    )

    end = 0
    for span in found:
        assert isinstance(span, Found)
        assert end <= span.start < span.end <= len(text)
        assert text[span.start : span.end].strip() == text[span.start : span.end]
        assert 0 < span.score <= 1
        end = span.end
