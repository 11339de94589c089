"""What an entry says of its inputs and outputs holds for every family."""

from __future__ import annotations

import pytest

from engine.bounds import prepare_within
from engine.errors import InvalidInput
from engine.requests import EncodeOptions, Item, OutputType, Request, Task
from tests.simulation import model


class Untouched:
    def prepare(self, task, items, options):
        raise AssertionError("it was prepared")


def test_a_kind_of_vector_that_the_entry_does_not_name_is_refused_with_those_it_does():
    options = EncodeOptions(output_types=(OutputType.DENSE, OutputType.SPARSE))
    asked = Request("q", Task.ENCODE, "a", (Item(text="x"),), options)

    with pytest.raises(InvalidInput, match="a gives no sparse vectors; output_types: dense"):
        prepare_within(Untouched(), model("a"), asked)
    with pytest.raises(InvalidInput, match="a gives no sparse vectors"):
        prepare_within(Untouched(), model("a", outputs=[]), asked)
    with pytest.raises(AssertionError, match="it was prepared"):
        prepare_within(Untouched(), model("a", outputs=["dense", "sparse"]), asked)
