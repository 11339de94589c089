"""Which of the spans that a model proposes are entities: thresholds, overlaps, windows. Pure.

The rules are those of GLiNER's decoders (arXiv 2311.08526): the best span goes first, and no later one may
overlap it (flat), or overlap it without being nested in it (nested).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engine.adapters.preparing.windows import Span


@dataclass(frozen=True, slots=True)
class Candidate:
    """Words `first` to `last`, both included, as the `label`-th of what was asked."""

    first: int
    last: int
    label: int
    score: float


def above(chances: NDArray[np.float32], thresholds: Sequence[float]) -> list[Candidate]:
    """`chances` (words, widths, labels): of the span that begins at a word and is a width + 1 long."""
    words = chances.shape[0]
    starts, widths, labels = np.nonzero(chances > np.asarray(thresholds, np.float32))
    inside = starts + widths < words
    found = zip(starts[inside].tolist(), widths[inside].tolist(), labels[inside].tolist(), strict=True)
    return [
        Candidate(start, start + width, label, float(chances[start, width, label]))
        for start, width, label in found
    ]


def between(chances: NDArray[np.float32], thresholds: Sequence[float], most: int) -> list[Candidate]:
    """`chances` (words, labels, 3): that a span starts there, ends there, goes on there.

    A span has at most so many words, and is as likely as the least likely of its parts.
    """
    words = chances.shape[0]
    found: list[Candidate] = []
    for start, label in np.argwhere(chances[:, :, 0] > np.asarray(thresholds, np.float32)).tolist():
        least = thresholds[label]
        _, ends, inside = chances[:, label].T
        score = float(chances[start, label, 0])
        for last in range(start, min(words, start + most)):
            if inside[last] < least:
                break
            score = min(score, float(inside[last]))
            if ends[last] > least:
                found.append(Candidate(start, last, label, min(score, float(ends[last]))))
    return found


def placed(found: Iterable[Candidate], window: Span, owned: Span) -> list[Candidate]:
    """Those that this window answers for, by the words of the whole text: the middle word decides, so that
    every span belongs to the one window that sees the most around it."""
    moved = (Candidate(c.first + window.start, c.last + window.start, c.label, c.score) for c in found)
    return [c for c in moved if owned.start <= (c.first + c.last) // 2 < owned.end]


def named(found: Iterable[Candidate], names: Sequence[str]) -> list[Candidate]:
    """One label for each name: several prompts may stand for one, of which the surest counts."""
    first = {name: label for label, name in reversed(list(enumerate(names)))}
    best: dict[tuple[int, int, int], Candidate] = {}
    for c in found:
        label = first[names[c.label]]
        key = (c.first, c.last, label)
        if key not in best or best[key].score < c.score:
            best[key] = Candidate(c.first, c.last, label, c.score)
    return list(best.values())


def chosen(found: Iterable[Candidate], *, flat: bool, multi_label: bool) -> list[Candidate]:
    """The entities among `found`, in the order of the text. `multi_label`: a span may have several labels."""
    allowed = _apart if flat else _nested
    ranked = sorted(found, key=lambda c: -c.score)
    widest = max((c.last - c.first for c in ranked), default=0)
    kept: dict[int, list[Candidate]] = {}
    for candidate in ranked:
        if all(_together(candidate, other, allowed, multi_label) for other in _near(candidate, kept, widest)):
            kept.setdefault(candidate.first, []).append(candidate)
    return [candidate for first in sorted(kept) for candidate in kept[first]]


def joined(kept: Iterable[Candidate], words: NDArray[np.int32]) -> list[Candidate]:
    """Neighbours of a label as one, with the score of the first: what NuNER Zero's card does with its words.

    `kept` is in the order of the text, `words` (words, 2) has where each begins and ends; between neighbours
    there is at most one character.
    """
    whole: list[Candidate] = []
    for candidate in kept:
        last = whole[-1] if whole else None
        if (
            last is not None
            and last.label == candidate.label
            and candidate.first == last.last + 1
            and words[candidate.first, 0] - words[last.last, 1] <= 1
        ):
            whole[-1] = replace(last, last=candidate.last)
            continue
        whole.append(candidate)
    return whole


def _near(candidate: Candidate, kept: Mapping[int, list[Candidate]], widest: int) -> Iterator[Candidate]:
    """Those of `kept`, by their first words, that `candidate` can overlap: none is longer than `widest`."""
    firsts: Iterable[int] = range(candidate.first - widest, candidate.last + 1)
    if len(kept) < candidate.last + 1 - candidate.first + widest:
        firsts = kept
    return (other for first in firsts for other in kept.get(first, ()))


def _together(
    one: Candidate, other: Candidate, allowed: Callable[[Candidate, Candidate], bool], multi_label: bool
) -> bool:
    if (one.first, one.last) == (other.first, other.last):
        return multi_label and one.label != other.label
    return allowed(one, other)


def _apart(one: Candidate, other: Candidate) -> bool:
    return one.first > other.last or other.first > one.last


def _nested(one: Candidate, other: Candidate) -> bool:
    inner, outer = sorted([one, other], key=lambda c: c.last - c.first)
    return _apart(one, other) or (outer.first <= inner.first and inner.last <= outer.last)
