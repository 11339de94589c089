"""While one model loads, and unloads, the requests of another go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.load_beside import HOT, OTHER, measure
from tests.acceptance.serving import Server, serving
from tests.weights import weights

pytestmark = pytest.mark.alone

MOST = 2.5
"""Times the latency in quiet, of the median request. A load is work for a core, and callers, server and
neighbours share two: the exact figure is `loadtests/load_beside.py`'s. A loop that stands still while
weights are read makes it four times and more, since a load is then nearly always under way."""

TRIES = 3
"""Others on the machine pass; a loop that stands still does so each time."""


@pytest.fixture
def one_slot(tmp_path: Path) -> Iterator[Server]:
    for model in (HOT, OTHER):
        weights(model)
    with serving(tmp_path, memory="1GiB", slots=1) as server:
        yield server


def test_a_hot_model_is_served_while_another_loads_again_and_again(one_slot: Server):
    seen, rises = None, []
    while len(rises) < TRIES and not any(rise < MOST for rise in rises):
        seen = measure(one_slot, turns=4, seconds=2.0, spin=False)
        rises.append(seen.rise())

    assert seen is not None and seen.loads >= 8
    assert one_slot.changes(OTHER, "loaded") > seen.loads
    assert min(rises) < MOST, (rises, seen)
