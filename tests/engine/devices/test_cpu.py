from __future__ import annotations

import anyio
import pytest
import torch

from engine.devices.cpu import Cpu
from engine.devices.nvml import Nvml
from tests.engine.actors.conftest import REAL_CLOCK
from tests.fresh import in_a_fresh_process

pytestmark = pytest.mark.anyio


class Weights:
    def __init__(self) -> None:
        self.value = torch.arange(1 << 22)

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"value": self.value}


def cpu() -> Cpu:
    return Cpu(slots=1, memory=1 << 30, threads_per_slot=1)


@REAL_CLOCK
async def test_a_model_leaves_and_comes_back():
    device, model = cpu(), Weights()

    parked = await device.park("m", model)
    assert model.value.numel() == 0
    back = await device.restore("m", parked)
    await device.forget(parked)

    assert back is model and torch.equal(model.value, torch.arange(1 << 22))


def test_what_the_process_takes_on_is_seen():
    in_a_fresh_process(what_is_taken_on_is_seen)


def what_is_taken_on_is_seen():
    anyio.run(allocating)


async def allocating():
    device = cpu()
    before = (await device.seen()).allocated_bytes
    held = torch.ones(16 << 20)
    seen = await device.seen()

    assert seen.allocated_bytes - before >= held.nbytes * 0.9
    assert seen.foreign_bytes == 0 and device.last_seen is seen


@REAL_CLOCK
async def test_looking_is_quick():
    device = cpu()
    began = anyio.current_time()
    for _ in range(20):
        await device.seen()

    assert (anyio.current_time() - began) / 20 < 0.005


def test_without_nvidias_library_there_is_nothing_to_ask():
    if torch.cuda.is_available():
        pytest.skip("this machine has a card")

    assert Nvml.open("GPU-0") is None
