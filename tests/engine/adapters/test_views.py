from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.adapters.generation.kv import Cache, Segment, Shape, Step
from engine.adapters.generation.views import Glance, View


def view(blocks: list[tuple[int, int]], seen: bool = True) -> View:
    places = np.concatenate([np.arange(*block) for block in blocks] or [np.arange(0)])
    glances = [Glance({}, end - begin, 1) for begin, end in blocks]
    made = View(glances, places, torch.zeros(1, len(places), 2), None, blocks)
    for begin, end in blocks if seen else ():
        made.see(torch.ones(1, end - begin, 2))
    return made


@st.composite
def blocked(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int]:
    """Stretches of a prompt with words between them, and its length."""
    at, blocks = 0, []
    for gap, size in draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 12)), max_size=4)):
        blocks.append((at + gap, at + gap + size))
        at += gap + size + 1
    return blocks, at + draw(st.integers(1, 9))


@given(blocked(), st.integers(1, 16))
def test_a_prompt_is_read_to_its_end_and_no_block_is_broken(prompt, rows):
    blocks, length = prompt
    made, at = view(blocks), 0

    while at < length:
        left = length - at
        count = made.unbroken(at, min(max(rows, made.least(at)), left))
        assert 0 < count <= max(rows, made.least(at))
        for begin, end in blocks:
            assert begin >= at + count or end <= at + count or end <= at
        reach = made.reach(at, count)
        expected = [next((e - 1 for b, e in blocks if b <= t < e), t) for t in range(at, at + count)]
        assert (np.arange(at, at + count) if reach is None else reach).tolist() == expected
        at += count


def test_what_was_not_looked_at_is_not_read_and_no_more_of_it_than_a_block():
    made = view([(3, 7), (9, 12)], seen=False)

    assert made.readable(0, 20) == 3
    made.see(torch.ones(1, 4, 2))
    assert made.readable(0, 20) == 9
    assert made.readable(0, 5) == 3  # the rest of the block has no room
    made.see(torch.ones(1, 3, 2))
    assert made.readable(3, 17) == 17


def test_a_token_of_a_block_sees_all_of_it_and_no_further_back_than_its_window():
    shape = Shape(layers=1, kv_heads=1, head_dim=4, dtype=torch.float32)
    cache = Cache(shape, 10, torch.device("cpu"))
    cache.length = 4
    reach = np.array([4, 7, 7, 7, 8])  # 5, 6 and 7 are an image

    (seen,) = Step([Segment(cache, 5, reach)]).seen(3)

    assert seen.length == 7  # from token 2 on
    assert seen.mask is not None
    assert seen.mask.int().tolist() == [
        [1, 1, 1, 0, 0, 0, 0],
        [0, 1, 1, 1, 1, 1, 0],
        [0, 0, 1, 1, 1, 1, 0],
        [0, 0, 0, 1, 1, 1, 0],
        [0, 0, 0, 0, 1, 1, 1],
    ]


def test_a_prefix_sees_all_of_itself_whatever_the_window():
    shape = Shape(layers=1, kv_heads=1, head_dim=4, dtype=torch.float32)
    cache = Cache(shape, 10, torch.device("cpu"))

    (seen,) = Step([Segment(cache, 6, np.full(6, 5))]).seen(3)

    assert (seen.length, seen.mask, seen.causal) == (6, None, False)
