"""Token ids that a client made are embedded as its text would be."""

from __future__ import annotations

import pytest

from engine.adapters.family import Prepared
from engine.adapters.text_encoder import FAMILY
from engine.catalog import ModelSpec
from engine.errors import InputTooLong, InvalidInput
from engine.requests import EncodeOptions, Item, Overflow, Task
from tests.weights import starter, weights

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
HELLO = (7592, 2088)  # hello world
CLS, SEP = 101, 102


def prepare(*items: Item, options: EncodeOptions | None = None, **changes: object) -> list[object]:
    spec: ModelSpec = starter("minilm").model_copy(update={"family": "text_encoder", **changes})
    preparer = FAMILY.preparer(spec, weights(MINILM))
    return list(preparer.prepare(Task.ENCODE, items, options or EncodeOptions()))


def ids(found: object) -> list[int]:
    assert isinstance(found, Prepared), found
    return found.payload.ids.tolist()


def test_special_tokens_are_added_once():
    text, bare, framed = prepare(
        Item(text="hello world"), Item(tokens=HELLO), Item(tokens=(CLS, *HELLO, SEP))
    )

    assert ids(text) == ids(bare) == ids(framed) == [CLS, *HELLO, SEP]
    assert bare.usage.input_tokens == 4


def test_a_models_prompt_stands_before_them_too():
    prompts = {"query": "query: ", "document": "{text} .", "instruction": "{instruction}: {text}"}
    for options in (EncodeOptions(is_query=True), EncodeOptions(), EncodeOptions(instruction="find")):
        text, tokens = prepare(Item(text="hello world"), Item(tokens=HELLO), options=options, prompts=prompts)
        assert ids(text) == ids(tokens)


def test_too_many_are_cut_or_refused_as_a_text_is():
    (cut,) = prepare(Item(tokens=HELLO * 50), max_tokens=10)
    (refused,) = prepare(
        Item(tokens=HELLO * 50), options=EncodeOptions(overflow=Overflow.ERROR), max_tokens=10
    )

    assert ids(cut) == [CLS, *HELLO * 4, SEP]
    assert cut.usage.truncated == 1
    assert isinstance(refused, InputTooLong)


@pytest.mark.parametrize("token", [-1, 30_522, 2**31 - 1])
def test_tokens_that_the_model_does_not_have_are_refused_with_what_to_send(token):
    good, bad = prepare(Item(tokens=HELLO), Item(tokens=(token,)))

    assert isinstance(good, Prepared)
    assert isinstance(bad, InvalidInput)
    assert bad.item == 1
    assert "must send text" in str(bad)
