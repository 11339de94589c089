"""Whether a model fits is told before it was ever loaded, and telling it changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from engine.adapters.simulated import SimulatedFamily
from engine.catalog import ModelSpec
from engine.errors import NoRoom
from engine.memory.footprint import Footprint
from tests.simulation import MIB, catalog, engine, model, request

pytestmark = pytest.mark.anyio

SMALL = model("a/small", options={"weights_bytes": 100 * MIB})
LARGE = model("a/large", options={"weights_bytes": 400 * MIB})
MODELS = catalog(SMALL, LARGE)
R = TypeVar("R")


class Counting:
    works = 0

    async def __call__(self, work: Callable[[], R], /) -> R:
        self.works += 1
        return work()


class Broken(SimulatedFamily):
    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        raise ValueError("no header")


async def test_a_model_that_can_never_fit_is_refused_before_its_first_load_as_its_call_would_be():
    async with engine(MODELS, memory=300 * MIB) as opened:
        fits = (await opened.estimate(request("a/small", "one"))).outlook
        never = (await opened.estimate(request("a/large", "one"))).outlook
        with pytest.raises(NoRoom) as refused:
            await opened.submit(request("a/large", "one"))
        loads = [seen.loads for seen in opened.view().models]

    assert fits.refusal is None
    assert isinstance(never.refusal, NoRoom) and never.refusal.message == refused.value.message
    assert loads == [0, 0]


async def test_what_pins_leave_counts_and_what_is_there_needs_no_room():
    async with engine(MODELS, memory=480 * MIB) as opened:
        before = await opened.sizes.refusal("a/large")
        await opened.pin("a/small")
        beside = await opened.sizes.refusal("a/large")
        pinned = await opened.sizes.refusal("a/small")

    assert before is None and pinned is None
    assert isinstance(beside, NoRoom) and "a/small" in beside.message


async def test_looking_is_done_once_and_the_memory_manager_knows_nothing_of_it():
    counting = Counting()
    async with engine(MODELS, opening=counting) as opened:
        before = counting.works
        found = [await opened.sizes.footprint("a/small") for _ in range(3)]
        known = opened.closely.unit("a/small").weights_bytes
        looked = counting.works - before

    assert [each.weights_bytes for each in found if each] == [100 * MIB] * 3
    assert (looked, known) == (1, None)


async def test_files_that_cannot_be_used_tell_nothing_but_the_log_once(caplog):
    async with engine(MODELS, family=lambda name: Broken()) as opened:
        assert await opened.sizes.footprint("a/small") is None
        assert await opened.sizes.refusal("a/small") is None
        await opened.sizes.displaced()

    told = [r.message for r in caplog.records if "cannot be sized" in r.message]
    assert told == [f"{name} cannot be sized: ValueError: no header" for name in ("a/small", "a/large")]


async def test_a_pin_tells_of_models_that_no_longer_fit_though_nobody_ever_asked_for_them():
    async with engine(MODELS, memory=480 * MIB) as opened:
        beside = await opened.pin("a/small")
        refused = await opened.sizes.refusal("a/large")
        loads = [seen.loads for seen in opened.view().models]

    assert beside == ("a/large",) and isinstance(refused, NoRoom)
    assert loads == [1, 0]


async def test_what_would_have_to_be_converted_is_not_read_for_a_pin():
    asked: list[str] = []

    class Read(SimulatedFamily):
        def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
            asked.append(spec.id)
            return super().footprint(spec, path)

    async with engine(
        MODELS, memory=480 * MIB, family=lambda name: Read(), ready=lambda spec: spec.id != "a/large"
    ) as opened:
        assert await opened.pin("a/small") == ()

    assert {*asked} == {"a/small"}
