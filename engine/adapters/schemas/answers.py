"""What the network saw in a text's windows as an answer: entities, relations, classes and data. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from gliner2.inference.overlap import resolve_overlaps
from gliner2.models.boundary.engine import BoundaryExtractor
from numpy.typing import NDArray

from engine.adapters.labelling.choosing import Candidate, above, chosen, named, placed
from engine.adapters.schemas.instances import Value, filled, in_text, instances
from engine.adapters.schemas.jobs import SchemaJob, Window
from engine.adapters.schemas.network import Seen
from engine.adapters.schemas.questions import Kind, Question
from engine.errors import NotFinite
from engine.requests import Classification, Entity, Extracted, Relation


def answer(job: SchemaJob, windows: Sequence[Seen]) -> Extracted | NotFinite:
    if not all(seen.finite for seen in windows):
        return NotFinite()
    entities: list[Entity] = []
    relations: list[Relation] = []
    classes: list[Classification] = []
    data: dict[str, Any] = {}
    for number, question in enumerate(job.asked.questions):
        match question.kind:
            case Kind.ENTITIES:
                entities = [_entity(job, question, found) for found in _entities(job, number, windows)]
            case Kind.RELATION:
                related = _edges if any(seen.edges for seen in windows) else _relations
                relations += related(job, number, windows)
            case Kind.CLASSES:
                found = _classes(question, [seen.classes[number] for seen in windows], job)
                classes += found
                data[question.name] = _decided(question, found)
            case Kind.STRUCTURE:
                data |= filled(job, question, instances(job, number, windows))
    return Extracted(tuple(entities), tuple(relations), tuple(classes), data=data)


def _entities(job: SchemaJob, number: int, windows: Sequence[Seen]) -> list[Candidate]:
    question = job.asked.questions[number]
    thresholds = [field.threshold for field in question.fields]
    found: list[Candidate] = []
    for place, (window, seen) in enumerate(zip(job.windows, windows, strict=True)):
        proposed = list(seen.found.get(number, ()))
        if number in seen.spans:
            proposed = above(in_text(job, seen.spans[number][0], place), thresholds)
        # the full stop that is read behind a text is no word of it
        proposed = [c for c in proposed if c.last < len(window.span)]
        found += placed(proposed, window.span, window.owned)
    found = named(found, [field.name for field in question.fields])
    kept: list[Candidate] = []
    for label in range(len(question.fields)):
        kept += _settled([c for c in found if c.label == label], job.asked.overlaps)
    kept = chosen(kept, flat=True, multi_label=False) if job.asked.flat else kept
    return sorted(kept, key=lambda c: (c.first, c.last))


def _settled(found: Sequence[Candidate], overlaps: str | None) -> list[Candidate]:
    """Those of one label that stay beside each other: the best first, or as the library's policy says."""
    if overlaps is None:
        return chosen(found, flat=True, multi_label=False)
    return resolve_overlaps(
        found, overlaps, score=lambda c: c.score, start=lambda c: c.first, end=lambda c: c.last + 1
    )


def _entity(job: SchemaJob, question: Question, found: Candidate) -> Entity:
    start, end = int(job.words[found.first, 0]), int(job.words[found.last, 1])
    return Entity(job.text[start:end], question.fields[found.label].name, found.score, start, end)


def _relations(job: SchemaJob, number: int, windows: Sequence[Seen]) -> Iterator[Relation]:
    """Between spans that one window sees both; the surest where several do."""
    best: dict[tuple[int, ...], tuple[float, Value, Value]] = {}
    for instance in chain.from_iterable(instances(job, number, windows)):
        if instance["head"] and instance["tail"]:
            head, tail = instance["head"][0], instance["tail"][0]
            key, score = (head.first, head.last, tail.first, tail.last), min(head.score, tail.score)
            if key not in best or best[key][0] < score:
                best[key] = (score, head, tail)
    name = job.asked.questions[number].name
    return (Relation(head.text, tail.text, name, score) for score, head, tail in best.values())


def _edges(job: SchemaJob, number: int, windows: Sequence[Seen]) -> Iterator[Relation]:
    """Of pairs that say the same the library's rule keeps one, the fullest."""
    edges = [
        {"score": edge.score, "head": _end(job, window, edge.head), "tail": _end(job, window, edge.tail)}
        for window, seen in zip(job.windows, windows, strict=True)
        for edge in seen.edges.get(number, ())
        if max(*edge.head, *edge.tail) < len(window.span)
    ]
    name = job.asked.questions[number].name
    for edge in BoundaryExtractor._deduplicate_relation_edges(edges):
        yield Relation(edge["head"][0], edge["tail"][0], name, edge["score"])


def _end(job: SchemaJob, window: Window, words: tuple[int, int]) -> tuple[str, int, int, float]:
    """Text and place of the words of a window; the chance that the library has behind it is not looked at."""
    start = int(job.words[window.span.start + words[0], 0])
    end = int(job.words[window.span.start + words[1], 1])
    return job.text[start:end], start, end, 1.0


def _classes(
    question: Question, logits: Sequence[NDArray[np.float32]], job: SchemaJob
) -> list[Classification]:
    """Most likely first. NDArray[np.float32] of several windows are averaged by length."""
    rows = np.stack(logits)
    if question.multi_label:
        chances = 1 / (1 + np.exp(-rows))
    else:
        raised = np.exp(rows - rows.max(-1, keepdims=True))
        chances = raised / raised.sum(-1, keepdims=True)
    row = np.average(chances, axis=0, weights=[max(1, len(window.span)) for window in job.windows])
    kept = [
        Classification(field.name, chance)
        for field, chance in zip(question.fields, row.tolist(), strict=True)
        if not question.multi_label or chance >= field.threshold
    ]
    return sorted(kept, key=lambda c: -c.score)


def _decided(question: Question, found: Sequence[Classification]) -> Any:
    return [c.label for c in found] if question.multi_label else found[0].label
