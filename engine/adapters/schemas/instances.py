"""Instances of structures and relations in a text's windows, and `data` made of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.adapters.labelling.choosing import Candidate, above, chosen
from engine.adapters.schemas.jobs import SchemaJob
from engine.adapters.schemas.network import Seen
from engine.adapters.schemas.questions import Field, Lies, Question


@dataclass(frozen=True, slots=True)
class Value:
    """Words `first` to `last` of a text, or one of a field's choices, which has no place."""

    text: str
    score: float
    first: int = -1
    last: int = -1


Instance = Mapping[str, tuple[Value, ...]]


def in_text(job: SchemaJob, chances: NDArray[np.float32], place: int) -> NDArray[np.float32]:
    """(words, widths, fields) of the text's own words: without choices before and the full stop behind."""
    lead = job.asked.lead
    return chances[:, lead : lead + len(job.windows[place].span)].transpose(1, 2, 0)


def instances(job: SchemaJob, number: int, windows: Sequence[Seen]) -> list[list[Instance]]:
    """By window those of one question, without the ones that hold nothing."""
    question = job.asked.questions[number]
    found: list[list[Instance]] = []
    for place, seen in enumerate(windows):
        made = [
            {
                field.name: _values(job, field, chances[at : at + 1], place)
                for at, field in enumerate(question.fields)
            }
            for chances in seen.spans.get(number, ())
        ]
        found.append([instance for instance in made if any(instance.values())])
    return found


def _values(job: SchemaJob, field: Field, chances: NDArray[np.float32], place: int) -> tuple[Value, ...]:
    """`chances` (1, words, widths). In the order of the text, or of the choices; the surest, where one is
    asked for."""
    if field.choices:
        places = [(choice, job.asked.choices[choice.lower()]) for choice in field.choices]
        found = [Value(choice, float(chances[0, at, 0])) for choice, at in places]
        found = [value for value in found if value.score >= field.threshold]
    else:
        start = job.windows[place].span.start
        kept = chosen(above(in_text(job, chances, place), [field.threshold]), flat=True, multi_label=False)
        found = [_value(job, Candidate(c.first + start, c.last + start, 0, c.score)) for c in kept]
    return tuple(found) if field.many else _surest(found)


def _value(job: SchemaJob, found: Candidate) -> Value:
    start, end = int(job.words[found.first, 0]), int(job.words[found.last, 1])
    return Value(job.text[start:end], found.score, found.first, found.last)


def _surest(found: Sequence[Value]) -> tuple[Value, ...]:
    return (max(found, key=lambda value: value.score),) if found else ()


def filled(job: SchemaJob, question: Question, found: Sequence[Sequence[Instance]]) -> dict[str, Any]:
    """What `data` holds of a structure, whose instances are given by window."""
    if question.lies is Lies.LISTED:
        return {question.name: [_shown(job, question, instance) for instance in _distinct(found)]}
    firsts = [listed[0] for listed in found if listed]
    if question.lies is Lies.ALONE:
        return {question.name: _shown(job, question, _joined(question, firsts)) if firsts else None}
    return _shown(job, question, _joined(question, firsts))


def _distinct(found: Sequence[Sequence[Instance]]) -> list[Instance]:
    """Without those of which another window says as much or more."""
    held = [(place, _marks(instance), instance) for place, listed in enumerate(found) for instance in listed]
    kept: list[int] = []
    for number in sorted(range(len(held)), key=lambda n: -len(held[n][1])):
        place, marks, _ = held[number]
        if not any(held[other][0] != place and marks <= held[other][1] for other in kept):
            kept.append(number)
    return [held[number][2] for number in sorted(kept)]


def _marks(instance: Instance) -> frozenset[tuple[str, str, int, int]]:
    every = {(name, v.text, v.first, v.last) for name, values in instance.items() for v in values}
    return frozenset({mark for mark in every if mark[2] >= 0} or every)


def _joined(question: Question, found: Sequence[Instance]) -> Instance:
    """One instance of those that the windows have: the surest value of a field, or all."""
    joined: dict[str, tuple[Value, ...]] = {}
    for field in question.fields:
        values = list(chain.from_iterable(instance[field.name] for instance in found))
        if not field.many:
            joined[field.name] = _surest(values)
        elif field.choices:
            best = {value.text: value for value in sorted(values, key=lambda value: value.score)}
            joined[field.name] = tuple(best[choice] for choice in field.choices if choice in best)
        else:
            by_place = {(value.first, value.last): value for value in values}
            settled = chosen(
                [Candidate(v.first, v.last, 0, v.score) for v in values], flat=True, multi_label=False
            )
            joined[field.name] = tuple(by_place[c.first, c.last] for c in settled)
    return joined


def _shown(job: SchemaJob, question: Question, instance: Instance) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for field in question.fields:
        values = instance[field.name]
        if job.asked.spans:
            said: list[Any] = [_placed(job, value) for value in values]
        else:
            said = list(dict.fromkeys(value.text for value in values))
        shown[field.name] = said if field.many else next(iter(said), None)
    return shown


def _placed(job: SchemaJob, value: Value) -> dict[str, Any]:
    said: dict[str, Any] = {"text": value.text, "score": value.score}
    if value.first >= 0:
        said |= {"start": int(job.words[value.first, 0]), "end": int(job.words[value.last, 1])}
    return said
