"""The whole engine with two SGLang models on one device that has room for one; others would be parked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.adapters.sglang import FAMILY
from engine.config import Settings
from engine.devices.cpu import Cpu
from engine.offload import Threads
from engine.orders import Action, Order
from engine.parts import Parts
from engine.requests import Generated, GenerateOptions, Item, Request, Task
from engine.running import Engine, open_engine
from tests.engine.actors.conftest import REAL_CLOCK
from tests.engine.adapters.sglang_world import alive, entry, family, notes, until
from tests.engine.adapters.tiny_decoders import CONFIGS, save
from tests.simulation import catalog

pytestmark = [pytest.mark.anyio, REAL_CLOCK]


class Card(Cpu):
    """Evicted models are kept, as on a card."""

    host_tier = True


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    return {name: save(tmp_path / name, CONFIGS["llama"]) for name in "ab"}


async def generated(served: Engine, name: str, text: str, most: int = 64) -> str:
    options = GenerateOptions(raw=True, max_new_tokens=most)
    asked = Request(text, Task.GENERATE, f"tests/{name}", (Item(text=text),), options)
    (output,) = (await served.submit(asked)).outputs
    assert isinstance(output, Generated)
    return output.text


def parts(tmp_path: Path, places: dict[str, Path], room: float) -> tuple[Any, Parts]:
    entries = {name: entry(path, id=f"tests/{name}") for name, path in places.items()}
    one = FAMILY.footprint(entries["a"], places["a"]).weights_bytes
    card = Card("cpu", slots=2, memory=int(one * room), threads_per_slot=1)
    made = family(tmp_path)
    where = {f"tests/{name}": path for name, path in places.items()}
    stands = Parts(
        devices=(card,),
        locate=lambda spec: where[spec.id],
        family=lambda name: made,
        opening=Threads(2),
        preparing=Threads(1),
    )
    return catalog(*entries.values()), stands


async def test_under_pressure_one_sleeps_while_the_other_answers_and_none_is_left_at_the_end(
    tmp_path, places
):
    models, stands = parts(tmp_path, places, 1.5)
    settings = Settings(devices="cpu", headroom=0.0, host_memory=1 << 30, min_residency=0.0)
    async with open_engine(settings, models, stands) as served:
        said = [await generated(served, name, f"text {n}") for n, name in enumerate("abab")]
        (device,) = served.view().devices
        resident = sum(device.lines.values())

    assert said == ["0 txet", "1 txet", "2 txet", "3 txet"]
    assert resident <= stands.devices[0].total_bytes
    for name in "ab":
        assert len(notes(places[name], "starts")) == 1, name
        assert len(notes(places[name], "resumed")) == 1, name
        until(lambda name=name: not alive(int(notes(places[name], "starts")[0])))


async def test_an_unload_by_an_operator_keeps_nothing(tmp_path, places):
    models, stands = parts(tmp_path, places, 3.0)
    settings = Settings(devices="cpu", headroom=0.0, host_memory=1 << 30)
    async with open_engine(settings, models, stands) as served:
        await generated(served, "a", "hello")
        await served.operators.operate(Order(Action.UNLOAD, "tests/a"))
        until(lambda: not alive(int(notes(places["a"], "starts")[0])))

    assert notes(places["a"], "released") == []
