"""What is held of requests counts as what it became when it was prepared, where that is more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from engine.adapters import simulated
from engine.adapters.family import Prepared, Preparer
from engine.catalog import ModelSpec
from engine.errors import EngineError, QueueFull
from engine.requests import Item, Options, Task
from tests.engine.test_engine import gather
from tests.simulation import catalog, engine, model, request

pytestmark = pytest.mark.anyio


class Pixels:
    """Of every input, 4000 bytes."""

    def __init__(self, preparer: Preparer) -> None:
        self._preparer = preparer

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        made = self._preparer.prepare(task, items, options)
        return [
            each if isinstance(each, EngineError) else msgspec.structs.replace(each, nbytes=4000)
            for each in made
        ]


class Growing(type(simulated.FAMILY)):  # type: ignore[misc]
    def preparer(self, spec: ModelSpec, path: Path) -> Preparer:
        return Pixels(super().preparer(spec, path))


async def test_inputs_that_grew_are_refused_where_no_room_is_left_for_them():
    slow = model("a", options={"seconds_per_batch": 1.0}, limits={"max_batch_jobs": 1})
    async with engine(catalog(slow), family=lambda name: Growing(), max_held_bytes=10_000) as served:
        answers = await gather(*[served.submit(request("a", "small")) for _ in range(5)])
        (alone,) = await gather(served.submit(request("a", *["small"] * 5)))

        refused = [answer for answer in answers if isinstance(answer, QueueFull)]
        assert len(refused) == 3
        assert len(alone.outputs) == 5  # one alone is never too large
        assert served.view().held_bytes == 0
