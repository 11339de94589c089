"""`inputs` in all the shapes that TEI takes: a text or token ids, alone or several; sequences and pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from engine.errors import InvalidInput
from engine.requests import Item, Overflow
from web.dialects.tei import BatchTooLarge, Empty
from web.wire import texts
from web.wire.items import Limits

Id = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Inputs = str | Annotated[list[str | Id | list[Id]], Meta(max_length=2**20)]
"""One text, a list of texts, the token ids of one, or a list of those."""
Sequences = str | Annotated[list[str | list[str]], Meta(max_length=2**18)]
"""One text; a list of one text, or of the two of a pair; or a list of such lists."""


class Cutting(Struct):
    """What every route that reads texts knows of those that are too long."""

    truncate: bool | None = None
    truncation_direction: str = "right"

    @property
    def overflow(self) -> Overflow:
        """As the entry says unless the caller did. Texts are cut at their end only."""
        if self.truncation_direction.lower() != "right":
            raise InvalidInput("truncation_direction: texts are cut at their end here; leave it out.")
        if self.truncate is None:
            return Overflow.DEFAULT
        return Overflow.TRUNCATE if self.truncate else Overflow.ERROR


def items(inputs: Inputs, limits: Limits) -> tuple[Item, ...]:
    """Raises Empty, BatchTooLarge, InputTooLong, or InvalidInput for texts and ids in one list."""
    if isinstance(inputs, str):
        return texts.items([inputs], limits, "inputs")
    kinds = {type(each) for each in inputs}
    if kinds == {int}:
        return (_ids(inputs),)
    count(inputs, limits, "inputs")
    if kinds == {str}:
        return texts.items([each for each in inputs if isinstance(each, str)], limits, "inputs")
    if kinds != {list}:
        raise InvalidInput("inputs mixes texts and token ids; send them apart.")
    return tuple(_ids(each) for each in inputs if isinstance(each, list))


def count(values: Sequence[object], limits: Limits, name: str) -> None:
    """Raises Empty or BatchTooLarge, as TEI does before it looks at the texts."""
    if not values:
        raise Empty(f"`{name}` cannot be empty")
    if len(values) > limits.items:
        raise BatchTooLarge(f"batch size {len(values)} > maximum allowed batch size {limits.items}")


def _ids(values: Sequence[object]) -> Item:
    return Item(tokens=tuple(each for each in values if isinstance(each, int)))


def sequences(inputs: Sequences, limits: Limits) -> tuple[list[tuple[str, ...]], bool]:
    """Sequences of one text or the two of a pair; and whether it is one that was sent in no list of such.

    Raises Empty, BatchTooLarge or InvalidInput.
    """
    if isinstance(inputs, str):
        return [(inputs,)], True
    count(inputs, limits, "inputs")
    flat = tuple(each for each in inputs if isinstance(each, str))
    if len(flat) == len(inputs):
        return [_sequence(flat, "inputs")], True
    if flat:
        raise InvalidInput("inputs mixes texts and lists of texts; write every text as a list of one.")
    return [_sequence(tuple(each), f"inputs[{index}]") for index, each in enumerate(inputs)], False


def _sequence(given: tuple[str, ...], where: str) -> tuple[str, ...]:
    if len(given) in (1, 2):
        return given
    raise InvalidInput(
        f"{where} has {len(given)} texts: a list of texts is one sequence, of one text or the two of a pair. "
        'Write several sequences as [["one"], ["two"], ["three"]].'
    )
