"""What a request asks of a model that reads schemas: questions, as GLiNER2 (arXiv 2507.18546) reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.errors import InvalidInput

SPECIAL = (
    *("[SEP_STRUCT]", "[SEP_TEXT]", "[P]", "[C]", "[E]", "[R]", "[L]"),
    *("[EXAMPLE]", "[OUTPUT]", "[DESCRIPTION]"),
)
"""In the order in which they are added to a tokenizer that lacks them."""
SEPARATOR, TEXT, DESCRIPTION = SPECIAL[0], SPECIAL[1], SPECIAL[9]


class Kind(StrEnum):
    """What is asked; the value is the marker before each field."""

    STRUCTURE = "[C]"
    ENTITIES = "[E]"
    RELATION = "[R]"
    CLASSES = "[L]"


class Lies(StrEnum):
    """Where the instances of a structure lie in `data`."""

    LISTED = "listed"
    ALONE = "alone"
    SPREAD = "spread"
    """Its fields are those of `data` itself."""


@dataclass(frozen=True, slots=True)
class Field:
    """A label, or a field of a structure."""

    name: str
    """In answers."""
    read: str
    """By the model."""
    threshold: float
    many: bool = True
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    kind: Kind
    name: str
    fields: tuple[Field, ...]
    descriptions: tuple[tuple[str, str], ...] = ()
    """Of fields, by what the model reads for them; a relation has one, of itself."""
    lies: Lies = Lies.LISTED
    multi_label: bool = False
    """Classes: whether they are judged each for itself."""

    @property
    def words(self) -> list[str]:
        """As the model reads it; each is tokenised for itself."""
        prompt = self.name
        if self.kind is Kind.RELATION:
            prompt += "".join(f": {said}" for _, said in self.descriptions)
        else:
            prompt += "".join(f" {DESCRIPTION} {field}: {said}" for field, said in self.descriptions)
        fields = [word for field in self.fields for word in (self.kind.value, field.read)]
        return ["(", "[P]", prompt, "(", *fields, ")", ")"]

    @property
    def marks(self) -> list[int]:
        """Places in `words` of what stands for the question, and of what stands for each field."""
        return [1, *range(4, 4 + 2 * len(self.fields), 2)]


def check(questions: Iterable[Question]) -> None:
    """Raises InvalidInput where a text holds what the model reads as the form of a schema."""
    for question in questions:
        held = [question.name, *(field.read for field in question.fields)]
        held += [choice for field in question.fields for choice in field.choices]
        held += [said for _, said in question.descriptions]
        if strange := [marker for marker in SPECIAL for text in held if marker in text]:
            raise InvalidInput(f"{strange[0]} is one of the model's own markers; leave it out.")
        read = [field.read for field in question.fields]
        if len(set(read)) < len(read):
            raise InvalidInput(f"{question.name} has a field twice.")


def choices_read(questions: Sequence[Question]) -> list[str]:
    """Words that stand before every text: fields that are chosen from a list, with what may be chosen."""
    words: list[str] = []
    for question in questions:
        listed: list[str] = []
        for field in question.fields:
            if not field.choices or question.kind is not Kind.STRUCTURE:
                continue
            listed += [",", field.read, "(", field.choices[0]]
            for choice in field.choices[1:]:
                listed += ["|", choice]
            listed.append(")")
        if listed:
            words += ["(", f"{question.name}:", *listed[1:], ")"]
    return words
