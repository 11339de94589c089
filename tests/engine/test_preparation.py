"""Preparers are made of entries that their family can serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.adapters import text_encoder
from engine.errors import LoadFailed
from engine.offload import Threads
from engine.preparation import Preparation
from engine.requests import EncodeOptions, Item, Task
from tests import simulation

pytestmark = pytest.mark.anyio


async def test_a_task_beyond_the_family_is_refused_with_what_it_can_do():
    spec = simulation.model("a/b", (Task.ENCODE, Task.SCORE), family="text_encoder")
    preparation = Preparation(
        lambda spec: Path("/"), lambda name: text_encoder.FAMILY, Threads(1), Threads(1)
    )

    with pytest.raises(LoadFailed, match="that a/b can score; its family text_encoder can only encode"):
        await preparation.prepare("a/b", spec, Task.SCORE, [Item(text="x")], EncodeOptions())
