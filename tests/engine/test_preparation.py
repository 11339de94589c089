"""Preparers are made of entries that their family can serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.adapters import cross_encoder, simulated
from engine.errors import LoadFailed
from engine.offload import Inline
from engine.preparation import Preparation
from engine.requests import Task
from tests import simulation

pytestmark = pytest.mark.anyio


async def test_a_task_beyond_the_family_is_refused_with_what_it_can_do():
    spec = simulation.model("a/b", (Task.ENCODE, Task.SCORE), family="cross_encoder")
    preparation = Preparation(lambda spec: Path("/"), lambda name: cross_encoder.FAMILY, Inline(), Inline())

    with pytest.raises(LoadFailed, match="that a/b can encode; its family cross_encoder can only score"):
        await preparation.preparer("a/b", spec)


async def test_a_preparer_is_made_once_for_an_entry_and_anew_for_a_changed_one():
    located = []

    def locate(spec):
        located.append(spec)
        return Path("/")

    first, second = simulation.model("a"), simulation.model("a")
    preparation = Preparation(locate, lambda name: simulated.FAMILY, Inline(), Inline())
    for spec in (first, first, second, second):
        await preparation.preparer("a", spec)

    assert [id(spec) for spec in located] == [id(first), id(second)]
