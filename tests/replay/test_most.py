"""Where a ladder's rungs begin to fail, whatever luck does near there and wherever one begins to look."""

from __future__ import annotations

from collections.abc import Set

from hypothesis import example, given
from hypothesis import strategies as st

from engine.requests import ServiceClass
from replay.groups import Group
from replay.most import DOUBT, GREATEST, LEAST, Ladder

FAILED = Group("a", ServiceClass.STANDARD, 1.0, 99, 1.0, 2.0, 3.0, 0.5, 0.0, 0.0, 0.0, {}, "queue")


def ladder(failing: Set[int], tried: list[int] | None = None) -> Ladder:
    def fails(place: int) -> Group | None:
        if tried is not None:
            tried.append(place)
        return FAILED if place in failing else None

    return Ladder(fails, LEAST, GREATEST)


@given(
    first=st.integers(LEAST, GREATEST - DOUBT),
    luck=st.lists(st.booleans(), min_size=DOUBT, max_size=DOUBT),
    alone=st.sets(st.integers(LEAST, GREATEST).map(lambda place: place // 3 * 3)),
    start=st.integers(LEAST, GREATEST),
)
@example(first=10, luck=[False, True, False, False], alone={6}, start=60)
@example(first=LEAST, luck=[True] * DOUBT, alone=set(), start=0)
def test_the_limit_is_the_same_wherever_one_begins_though_luck_decides_near_it(first, luck, alone, start):
    """From `first` on two fail, then luck decides, then all fail; below it some fail alone."""
    doubtful = {first + 2 + n for n, bad in enumerate(luck[:-2]) if bad}
    certain = set(range(first + DOUBT, GREATEST + 1))
    below = {place for place in alone if place < first - 1}
    failing = below | {first, first + 1} | doubtful | certain

    assert ladder(failing).limit(start) == first - 1


def test_nothing_that_fails_is_told_from_everything_that_does():
    tried: list[int] = []
    assert ladder(set(), tried).limit(GREATEST) == GREATEST and tried == [GREATEST]
    assert ladder(set()).limit(5) == GREATEST and ladder(set()).beyond(GREATEST) is None
    assert ladder(set(range(LEAST, GREATEST + 1))).limit(5) == LEAST - 1


def test_who_begins_near_looks_at_few_rungs():
    tried: list[int] = []
    failing = set(range(40, GREATEST + 1))
    assert ladder(failing, tried).limit(40) == 39
    assert len(tried) <= 6 and sum(place not in failing for place in tried) <= 3
