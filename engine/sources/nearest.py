"""Which other entry to suggest when one has no weights here. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from engine.catalog import ModelSpec


def nearest(
    wanted: ModelSpec, among: Iterable[ModelSpec], runs: Callable[[ModelSpec], bool]
) -> ModelSpec | None:
    """The entry that does most of what `wanted` does, of those that run; None when none does its first task.

    Outputs and inputs in common count before the family, the family before what the two are said to be.
    """
    fit = [spec for spec in among if spec.id != wanted.id and _likeness(wanted, spec) is not None]
    fit.sort(key=lambda spec: (_likeness(wanted, spec), spec.id), reverse=True)
    return next((spec for spec in fit if runs(spec)), None)


def _likeness(wanted: ModelSpec, spec: ModelSpec) -> tuple[int, int, bool, float] | None:
    """None when `spec` is no substitute: another task, no input in common, or no output in common."""
    inputs = set(wanted.inputs) & set(spec.inputs)
    outputs = set(wanted.outputs) & set(spec.outputs)
    if wanted.tasks[0] not in spec.tasks or not inputs or (wanted.outputs and not outputs):
        return None
    ours, theirs = _words(wanted), _words(spec)
    return len(outputs), len(inputs), spec.family == wanted.family, len(ours & theirs) / len(ours | theirs)


def _words(spec: ModelSpec) -> set[str]:
    text = " ".join((spec.id, spec.description, *spec.labels)).lower()
    return {word for word in re.findall(r"[^\W_]+", text) if len(word) > 2}
