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


async def test_a_damaged_file_is_told_with_where_to_look(tmp_path):
    class Damaged(type(simulated.FAMILY)):
        def preparer(self, spec, path):
            return {}["added_tokens"]

    preparation = Preparation(lambda spec: tmp_path, lambda name: Damaged(), Inline(), Inline())

    with pytest.raises(
        LoadFailed, match=r"KeyError: 'added_tokens'\. One of its JSON files .*tokenizer\.json"
    ):
        await preparation.preparer("a", simulation.model("a"))


async def test_no_preparer_is_made_of_a_configuration_that_cannot_be_true(tmp_path):
    (tmp_path / "config.json").write_text('{"num_labels": 1000000000}')
    preparation = Preparation(lambda spec: tmp_path, lambda name: simulated.FAMILY, Inline(), Inline())

    with pytest.raises(LoadFailed, match=r"config\.json: num_labels is 1000000000"):
        await preparation.preparer("a", simulation.model("a"))
