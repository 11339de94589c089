"""Long inputs in overlapping windows: where the windows lie, and what an overflow policy makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine.catalog import ModelSpec
from engine.errors import InputTooLong
from engine.requests import Overflow


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens `start` up to `end` of an input."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def windows(length: int, most: int, overlap: int) -> list[Span]:
    """As few windows of at most `most` tokens as cover `length`, evenly spread, each sharing at least
    `overlap` tokens with the next; one empty window for nothing."""
    assert 0 <= overlap < most
    if length <= most:
        return [Span(0, length)]
    count = -(-(length - overlap) // (most - overlap))
    starts = [(length - most) * i // (count - 1) for i in range(count)]
    return [Span(start, start + most) for start in starts]


def owned(spans: Sequence[Span]) -> list[Span]:
    """The part of each window that it answers for: together they cover the input once. A token belongs
    to the window in which more tokens are around it."""
    borders = [(a.end + b.start) // 2 for a, b in pairwise(spans)]
    return [Span(start, end) for start, end in zip([0, *borders], [*borders, spans[-1].end], strict=True)]


def fit(length: int, most: int, overlap: int, spec: ModelSpec, overflow: Overflow) -> list[Span]:
    """The windows of an input of `length` tokens to a model that takes `most`, as `overflow` says.

    Truncation is one window, the first. Raises InputTooLong where the policy is to refuse.
    """
    if length <= most:
        return [Span(0, length)]
    policy = Overflow(spec.overflow) if overflow is Overflow.DEFAULT else overflow
    if policy is Overflow.WINDOW:
        return windows(length, most, overlap)
    if policy is Overflow.TRUNCATE:
        return [Span(0, most)]
    raise InputTooLong(
        f"The text has {length} tokens; {spec.id} takes {most}.", tokens=length, max_tokens=most
    )
