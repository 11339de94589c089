"""The same texts each time, in a mix of lengths as traffic has it: many short, a few long."""

from __future__ import annotations

import random
from collections.abc import Sequence

from engine.adapters.family import Prepared, Preparer
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import EncodeOptions, ExtractOptions, Item, Options, ScoreOptions, Task

TEXT = (
    "the river rose overnight and water entered the cellar before anyone in the house was awake the pump "
    "was rented from a shop in Leeds by Maria Gonzalez and the invoice lists labour parts transport and tax "
    "please state whether the policy of 2019 covers mould on the northern wall and who pays for drying"
)
WORDS = TEXT.split()
MEDIAN_WORDS, SPREAD = 24, 1.0
"""Of a log-normal distribution: one text in forty has more than 170 words."""
LONGEST_WORDS = 400
LABELS = ("person", "organisation", "place", "amount")
QUERY = Item(text="Who pays for the pump after the river entered the cellar?")


def texts(count: int, seed: int = 7) -> list[str]:
    chosen = random.Random(seed)
    lengths = [int(chosen.lognormvariate(0, SPREAD) * MEDIAN_WORDS) for _ in range(count)]
    return [" ".join(chosen.choices(WORDS, k=min(LONGEST_WORDS, max(2, length)))) for length in lengths]


def options(spec: ModelSpec) -> tuple[Task, Options]:
    """What the entry's first task is asked with. Raises InvalidInput where it wants other than texts."""
    if "text" not in spec.inputs or spec.tasks[0] is Task.GENERATE:
        raise InvalidInput(f"{spec.id} takes no plain texts to encode, score or extract from.")
    match spec.tasks[0]:
        case Task.ENCODE:
            return Task.ENCODE, EncodeOptions()
        case Task.SCORE:
            return Task.SCORE, ScoreOptions(query=QUERY, activation="raw")
        case _:
            closed = spec.family in ("text_classifier", "token_classifier", "spacy_ner", "nanoguard")
            return Task.EXTRACT, ExtractOptions(labels=() if closed else LABELS)


def prepared(spec: ModelSpec, preparer: Preparer, given: Sequence[str]) -> list[Prepared]:
    """Raises the first item's error, if there is one."""
    task, asked = options(spec)
    jobs = preparer.prepare(task, [Item(text=text) for text in given], asked)
    for job in jobs:
        if isinstance(job, EngineError):
            raise job
    return [job for job in jobs if isinstance(job, Prepared)]
