"""Tokens as the model reads them, shown to whoever asks: the same ids, and places in the text."""

from __future__ import annotations

import pytest

from engine.adapters import causal_lm, cross_encoder, text_encoder, token_classifier
from engine.adapters.family import Cutting
from engine.adapters.preparing.cutting import Cutter
from engine.adapters.preparing.tokens import TextTokenizer
from engine.catalog import ModelSpec
from engine.requests import EncodeOptions, Item, Task
from tests import weights

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
TEXTS = ["Hello, wörld! 👩‍👩‍👧", "", " ", "שלום", "a" * 500]


@pytest.fixture(scope="module")
def cutter() -> Cutter:
    return TextTokenizer(weights.weights(MINILM)).cutter


def spec(name: str) -> ModelSpec:
    return weights._catalog().models[name]


def test_the_ids_are_those_that_the_model_reads(cutter):
    preparer = text_encoder.FAMILY.preparer(spec(MINILM), weights.weights(MINILM))
    items = [Item(text=text) for text in TEXTS[:4]]

    prepared = preparer.prepare(Task.ENCODE, items, EncodeOptions())

    for tokens, job in zip(cutter.cut(TEXTS[:4], special=True), prepared, strict=True):
        assert list(tokens.ids) == job.payload.ids.tolist()


def test_spans_are_code_points_of_the_text_that_was_sent(cutter):
    (tokens,) = cutter.cut(TEXTS[:1], special=True)

    parts = [TEXTS[0][start:stop] for start, stop in tokens.spans]
    assert "".join(parts) == TEXTS[0].replace(" ", "")
    assert list(tokens.special) == [1, *[0] * (len(parts) - 2), 1]
    assert {tokens.names[tokens.ids[0]], tokens.names[tokens.ids[-1]]} == {"[CLS]", "[SEP]"}


def test_without_special_tokens_an_empty_text_has_none(cutter):
    assert [list(tokens.ids) for tokens in cutter.cut(["", " "], special=False)] == [[], []]


def test_ids_spell_their_text_again_and_unknown_ones_nothing(cutter):
    (tokens,) = cutter.cut(["hello world"], special=True)

    assert cutter.spell([tokens.ids, []], special=False) == ["hello world", ""]
    assert cutter.spell([tokens.ids], special=True) == ["[CLS] hello world [SEP]"]
    assert cutter.spell([[2**31 - 1]], special=True) == [""]


@pytest.mark.parametrize(
    ("family", "model"),
    [
        (text_encoder, MINILM),
        (cross_encoder, "cross-encoder/ms-marco-MiniLM-L-12-v2"),
        (token_classifier, "nationaldesignstudio/rampart"),
        (causal_lm, "HuggingFaceTB/SmolLM2-135M-Instruct"),
    ],
)
def test_every_family_that_reads_tokens_shows_them(family, model):
    preparer = family.FAMILY.preparer(spec(model), weights.weights(model))

    assert isinstance(preparer, Cutting)
    (tokens,) = preparer.cutter.cut(["hello world"], special=False)
    assert preparer.cutter.spell([tokens.ids], special=False)[0].strip().lower() == "hello world"
