"""The question that a decoder is asked about a query and a passage, in the parts that are tokenised apart.

A tokenizer joins what touches: "?" and the line break behind it may be one token. A model that was trained
on joined ids (mxbai-rerank-v2) must be asked in them, one that was trained on whole texts in one text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.adapters.forward.packed import Ids
from engine.adapters.forward.weights import BadWeights
from engine.adapters.preparing.tokens import Room, TextTokenizer
from engine.errors import InputTooLong

QUERY, DOCUMENT, INSTRUCTION = "{query}", "{document}", "{instruction}"


@dataclass(frozen=True, slots=True)
class Template:
    """What is written around a passage."""

    before: tuple[str, ...]
    lead: str
    """Tokenised together with the passage that follows it."""
    after: tuple[str, ...]
    instructed: str
    """How an instruction is written, where there is one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A template with its query: what stands before each passage."""

    before: Ids
    lead: str


def template(written: str | Sequence[str], instructed: str = INSTRUCTION) -> Template:
    """Of a text, or of several that are tokenised apart. Raises BadWeights for one that asks nothing."""
    parts = [written] if isinstance(written, str) else [str(part) for part in written]
    place = next((place for place, part in enumerate(parts) if DOCUMENT in part), None)
    if place is None or not any(QUERY in part.partition(DOCUMENT)[0] for part in parts[: place + 1]):
        raise BadWeights("a template holds {query}, then {document}")
    lead, _, rest = parts[place].partition(DOCUMENT)
    after = tuple(part for part in (rest, *parts[place + 1 :]) if part)
    return Template(tuple(parts[:place]), lead, after, instructed)


def asked(
    made: Template, query: str, instruction: str, tokenizer: TextTokenizer, room: Room, left: int
) -> Asked:
    """`left`: tokens for all but what stands behind the passage. Raises InputTooLong when none are left for
    a passage."""
    told = made.instructed.replace(INSTRUCTION, instruction) if instruction else ""
    values = {"query": query, "instruction": told}
    parts = [
        re.sub(r"\{(query|instruction)\}", lambda found: values[found[1]], part)
        for part in (*made.before, made.lead)
    ]
    clipped = [room.clip(part) for part in parts]
    *before, lead = tokenizer.ids(clipped)
    taken = sum(map(len, before)) + len(lead)
    if taken >= left or clipped != parts:
        raise InputTooLong(
            f"the query is {taken} tokens long with its instruction and leaves no room for a passage; "
            f"the model takes {room.tokens} for all",
            length=taken,
            max_length=room.tokens,
        )
    return Asked(np.concatenate([*before, np.zeros(0, np.int32)]), parts[-1])
