"""Answers as numbers, and how far two lists of them are apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineError
from engine.requests import Encoded, Extracted, Scored

Answer = dict[Any, float] | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Apart:
    """Of all answers the worst. A cosine is of vectors only."""

    max_difference: float
    cosine: float | None = None

    def within(self, cosine: float, difference: float) -> bool:
        if self.cosine is not None:
            return self.cosine >= cosine
        return self.max_difference <= difference


def numbers(output: object) -> Answer:
    """A vector as it is; scores by what they are of. Raises what went wrong."""
    if isinstance(output, EngineError):
        raise output
    match output:
        case Encoded(dense=found) if found is not None:
            return np.asarray(found, np.float64)
        case Encoded(multivector=found) if found is not None:
            return np.asarray(found, np.float64).ravel()
        case Encoded(sparse=found) if found is not None:
            row = np.zeros(found.dims)
            row[found.indices] = found.values
            return row
        case Scored(score=score):
            return {"score": score}
        case Extracted():
            spans = {(e.start, e.end, e.label): e.score for e in output.entities}
            return spans | {c.label: c.score for c in output.classifications}
    raise TypeError(f"a {type(output).__name__} has no numbers to compare")


def apart(found: Sequence[Answer], expected: Sequence[Answer]) -> Apart:
    """What one has and the other has not differs by its whole score."""
    cosines, differences = [], [0.0]
    for mine, theirs in zip(found, expected, strict=True):
        if isinstance(mine, dict) and isinstance(theirs, dict):
            keys = mine.keys() | theirs.keys()
            differences += [abs(mine.get(key, 0.0) - theirs.get(key, 0.0)) for key in keys]
            continue
        one, other = np.asarray(mine), np.asarray(theirs)
        if one.shape != other.shape:
            return Apart(float("inf"), -1.0)
        cosines.append(_cosine(one, other))
        differences.append(float(np.abs(one - other).max(initial=0)))
    return Apart(max(differences), min(cosines) if cosines else None)


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    if not (one.any() or other.any()):
        return 1.0  # both say that there is nothing
    return float(one @ other / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-30))
