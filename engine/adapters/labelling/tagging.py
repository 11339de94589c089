"""From a label for every token to spans of text: BIO, BILOU, BIOES or plain labels. Pure.

Grouping and scores are those of transformers' TokenClassificationPipeline (`aggregation_strategy`
simple, first, average, max), with three differences: words are the tokenizer's own, so that stripped
accents do not glue a word to the one before; spans carry no white space at their ends and take combining
marks with them; and the last token of BILOU and BIOES ends its span.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

Aggregation = Literal["simple", "first", "average", "max"]

OUTSIDE = "O"
PREFIXED = re.compile(r"([BILEUS])-(.+)", re.DOTALL)
BEGINS = frozenset("BUS")
ENDS = frozenset("LEUS")


@dataclass(frozen=True, slots=True)
class Found:
    """`start` and `end` count code points of the text."""

    label: str
    score: float
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a text without special ones: code points (n, 2), and the word each belongs to (n,)."""

    offsets: NDArray[np.int32]
    words: NDArray[np.int32]


class Tagger:
    """Reads what a model says of each token. `names` are its labels in the order of its scores."""

    def __init__(
        self, names: Sequence[str], aggregation: str = "first", merge: Mapping[str, str] | None = None
    ) -> None:
        """`merge` joins neighbouring spans of a label when nothing but its characters is between them."""
        if aggregation not in get_args(Aggregation):
            raise ValueError(f"aggregation is one of {', '.join(get_args(Aggregation))}, not {aggregation!r}")
        self._aggregation = cast(Aggregation, aggregation)
        self._tags = _parsed(names)
        self._outside = np.array([tag == OUTSIDE for _, tag in self._tags])
        self._merge = dict(merge or {})
        if strange := self._merge.keys() - set(self.labels):
            raise ValueError(f"merge names {sorted(strange)[0]!r}, which is no label of the model")

    @property
    def labels(self) -> tuple[str, ...]:
        """What spans may be called."""
        return tuple(dict.fromkeys(tag for _, tag in self._tags if tag != OUTSIDE))

    def spans(self, text: str, tokens: Tokens, scores: NDArray[np.float32]) -> list[Found]:
        """Spans in order, never overlapping. `scores` (n, labels) are probabilities."""
        if not len(scores):
            return []
        starts, ends = self._units(text, tokens)
        chosen, sure = self._said(scores, starts, ends)
        groups: list[list[int]] = []
        for unit in np.flatnonzero(~self._outside[chosen]).tolist():
            if groups and groups[-1][-1] == unit - 1 and self._continues(chosen[unit - 1], chosen[unit]):
                groups[-1].append(unit)
            else:
                groups.append([unit])
        found: list[Found] = []
        for group in groups:
            first, last = starts[group[0]], ends[group[-1]]
            # letters that one character was taken apart into may lie in two spans: the first has it
            start = max(int(tokens.offsets[first, 0]), found[-1].end if found else 0)
            following = int(tokens.offsets[last, 0]) if last < len(tokens.words) else len(text)
            start, end = _trimmed(text, start, int(tokens.offsets[last - 1, 1]), following)
            if start < end:
                found.append(Found(self._tags[chosen[group[0]]][1], float(sure[group].mean()), start, end))
        return self._merged(text, found)

    def _units(self, text: str, tokens: Tokens) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """First and last + 1 token of whatever is labelled as one: tokens, or words."""
        count = len(tokens.words)
        if self._aggregation == "simple":
            return np.arange(count), np.arange(1, count + 1)
        new = np.ones(count, bool)
        new[1:] = tokens.words[1:] != tokens.words[:-1]
        for token in np.flatnonzero(~new).tolist():
            # a tokenizer without pre-tokenizer calls a whole text one word
            start = int(tokens.offsets[token, 0])
            new[token] = any(c.isspace() for c in text[max(0, start - 1) : start + 1])
        starts = np.flatnonzero(new)
        return starts, np.append(starts[1:], count)

    def _said(
        self, scores: NDArray[np.float32], starts: NDArray[np.intp], ends: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """The label of each unit, and how sure the model is of it."""
        match self._aggregation:
            case "simple" | "first":
                rows = scores[starts]
            case "average":
                rows = np.add.reduceat(scores, starts, axis=0) / (ends - starts)[:, None]
            case "max":
                best = scores.max(1)
                rows = scores[[a + int(best[a:b].argmax()) for a, b in zip(starts, ends, strict=True)]]
        return rows.argmax(1), rows.max(1)

    def _continues(self, before: int, now: int) -> bool:
        (ended, old), (begun, new) = self._tags[before], self._tags[now]
        return old == new and begun not in BEGINS and ended not in ENDS

    def _merged(self, text: str, found: list[Found]) -> list[Found]:
        merged: list[Found] = []
        for span in found:
            last = merged[-1] if merged else None
            glue = self._merge.get(span.label)
            if last is None or glue is None or last.label != span.label:
                merged.append(span)
            elif set(text[last.end : span.start]) <= set(glue):
                old, new = last.end - last.start, span.end - span.start
                score = (last.score * old + span.score * new) / (old + new)
                merged[-1] = replace(last, score=score, end=span.end)
            else:
                merged.append(span)
        return merged


def _parsed(names: Sequence[str]) -> list[tuple[str, str]]:
    """(prefix, tag) of each label. Labels have prefixes when all of them have; else each continues itself."""
    parts = [PREFIXED.fullmatch(name) for name in names]
    prefixed = all(part or name == OUTSIDE for part, name in zip(parts, names, strict=True))
    return [
        (part[1], part[2]) if part and prefixed else ("I", name)
        for part, name in zip(parts, names, strict=True)
    ]


def _trimmed(text: str, start: int, end: int, following: int) -> tuple[int, int]:
    """Without white space at its ends; with the marks of its last letter, but not past `following`."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    # a normaliser that strips accents leaves them outside the token
    while start < end < following and unicodedata.category(text[end]).startswith("M"):
        end += 1
    return start, end
