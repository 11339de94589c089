"""Which other entry to suggest when one has no weights here. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from engine.catalog import ModelSpec
from engine.requests import Task

ANSWERS = {
    "detector": "objects",
    "document": "pages",
    "nanoguard": "classes",
    "page": "pages",
    "spacy_ner": "entities",
    "text_classifier": "classes",
    "token_classifier": "entities",
}
"""What families that extract answer with. One that is not here is like itself only."""


def nearest(
    wanted: ModelSpec, among: Iterable[ModelSpec], runs: Callable[[ModelSpec], bool]
) -> ModelSpec | None:
    """The entry most like `wanted`, of those that run and take and do the same; None when there is none.

    Outputs in common count before the family, the family before what the two are said to be.
    """
    fit = [spec for spec in among if spec.id != wanted.id and _likeness(wanted, spec) is not None]
    fit.sort(key=lambda spec: (_likeness(wanted, spec), spec.id), reverse=True)
    return next((spec for spec in fit if runs(spec)), None)


def _likeness(wanted: ModelSpec, spec: ModelSpec) -> tuple[int, bool, float] | None:
    """None when `spec` is no substitute: it lacks a task or an input, or answers with something else."""
    serves = {*wanted.tasks} <= {*spec.tasks} and {*wanted.inputs} <= {*spec.inputs}
    outputs = set(wanted.outputs) & set(spec.outputs)
    alike = bool(outputs) if wanted.outputs else _answer(wanted) == _answer(spec)
    if not serves or not alike:
        return None
    ours, theirs = _words(wanted), _words(spec)
    return len(outputs), spec.family == wanted.family, len(ours & theirs) / len(ours | theirs)


def _answer(spec: ModelSpec) -> str:
    """Of entries with the same task, and no outputs that tell them apart."""
    return ANSWERS.get(spec.family, spec.family) if Task.EXTRACT in spec.tasks else ""


def _words(spec: ModelSpec) -> set[str]:
    text = " ".join((spec.id, spec.description, *spec.labels)).lower()
    return {word for word in re.findall(r"[^\W_]+", text) if len(word) > 2}
