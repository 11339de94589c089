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
        f"The text has {length} tokens; {spec.id} takes {most}.", length=length, max_length=most
    )


def filled(sizes: Sequence[int], most: int, room: int, overlap: int) -> list[Span]:
    """Windows of whole words, of which each takes `sizes` tokens: at most `most` words and `room` tokens in
    each, and `overlap` words shared with the next, less where words are so long that few fit.

    A word is never longer than `room`.
    """
    count, starts = len(sizes), [0]
    ends = [_reach(sizes, 0, most, room)]
    while ends[-1] < count:
        shared = min(overlap, (ends[-1] - starts[-1]) // 2)
        start = ends[-1] - shared
        end = _reach(sizes, start, most, room)
        while end <= ends[-1]:  # the words shared leave no room for one more
            start += 1
            end = _reach(sizes, start, most, room)
        starts.append(start)
        ends.append(end)
    return [Span(start, end) for start, end in zip(starts, ends, strict=True)]


def fitted(
    sizes: Sequence[int], most: int, room: int, overlap: int, spec: ModelSpec, overflow: Overflow
) -> tuple[list[Span], bool]:
    """`filled` windows as `overflow` says, and whether they hold all words.

    Truncation is one window, the first. Raises InputTooLong where the policy is to refuse.
    """
    spans = filled(sizes, most, room, overlap)
    policy = Overflow(spec.overflow) if overflow is Overflow.DEFAULT else overflow
    if len(spans) == 1 or policy is Overflow.WINDOW:
        return spans, True
    if policy is Overflow.TRUNCATE:
        return spans[:1], False
    raise InputTooLong(
        f"The text has {len(sizes)} words in {sum(sizes)} tokens; {spec.id} takes "
        f"{spans[0].end} of them at once. overflow_policy: window reads it in parts.",
        length=sum(sizes),
        max_length=room,
    )


def _reach(sizes: Sequence[int], start: int, most: int, room: int) -> int:
    end, taken = start, 0
    while end < min(len(sizes), start + most) and taken + sizes[end] <= room:
        taken += sizes[end]
        end += 1
    return end
