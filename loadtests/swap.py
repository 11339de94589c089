"""What it takes to bring an evicted model back: from host memory, by one copy, and from disk.

One table from one run: seconds to park and to restore against a plain copy of as many bytes, made in
turns with it; seconds to load from the model's files against reading them. On a card where there is one,
else from host memory to host memory. `python -m loadtests.swap --store DIR`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import anyio
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForCausalLM

from engine import catalog
from engine.adapters.family import Parkable, family
from engine.adapters.forward import weights
from engine.catalog import ModelSpec
from engine.devices.cpu import Cpu
from engine.devices.device import Device
from engine.devices.parking import HostBlock
from engine.resources import bundled
from engine.sources.locate import Sources

MODELS = ("sentence-transformers/all-MiniLM-L6-v2", "HuggingFaceTB/SmolLM2-135M-Instruct")
RATIO, SLACK = 1.5, 0.010
"""The goal: so many times the plain copy, and so many seconds."""


class OnCard:
    """A model as it is on a card: for a CPU its family would rearrange weights, which then stay there."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)


def load(spec: ModelSpec, path: Path, device: str) -> Parkable:
    if device != "cpu":
        model = family(spec.family).load(spec, path, device)
        assert isinstance(model, Parkable)
        return model
    auto = AutoModelForCausalLM if spec.family == "causal_lm" else AutoModel
    return OnCard(weights.load(auto, path, device, torch.float32))


def copy(size: int, device: str) -> float:
    """Seconds to copy `size` bytes of host memory to new memory of the device."""
    block = HostBlock(size, locked=device != "cpu")
    block.bytes.fill_(1)
    began = time.perf_counter()
    target = torch.empty(size, dtype=torch.uint8, device=device)
    target.copy_(block.bytes)
    spent = time.perf_counter() - began
    block.release()
    return spent


def read(path: Path) -> float:
    """Seconds to read the files of a model, which the system may have in memory already."""
    began = time.perf_counter()
    for file in path.glob("*.safetensors"):
        file.read_bytes()
    return time.perf_counter() - began


async def swap(device: Device, spec: ModelSpec, path: Path, times: int) -> bool:
    """Prints one line; whether the goal was met."""
    where = device.torch_device
    parks, restores, copies, loads, reads = [], [], [], [], []
    size = 0
    for turn in range(times + 1):
        reads.append(read(path))
        began = time.perf_counter()
        model = await device.load(spec.id, partial(load, spec, path, where))
        loads.append(time.perf_counter() - began)
        began = time.perf_counter()
        parked = await device.park(spec.id, model)
        parks.append(time.perf_counter() - began)
        size = parked.nbytes
        began = time.perf_counter()
        model = await device.restore(spec.id, parked)
        restores.append(time.perf_counter() - began)
        await device.forget(parked)
        await device.unload(spec.id, model.unload)
        copies.append(copy(size, where))
        if turn == 0:  # imports, and pages that nobody had touched
            for figures in (parks, restores, copies, loads, reads):
                figures.clear()
    return report(spec.id, size, *map(statistics.median, (parks, restores, copies, loads, reads)))


def report(
    name: str, size: int, park: float, restore: float, plain: float, loading: float, reading: float
) -> bool:
    met = restore <= RATIO * plain + SLACK
    print(
        f"{name.partition('/')[2]:30} {size / 2**20:6.0f} {1000 * park:8.1f} {1000 * restore:8.1f} "
        f"{1000 * plain:8.1f} {size / plain / 2**30:7.1f} {restore / plain:6.2f} "
        f"{'yes' if met else 'NO':>5} {1000 * loading:8.0f} {loading / reading:6.1f}"
    )
    return met


async def measure(store: Path, times: int) -> bool:
    torch.set_num_threads(1)
    device = await opened()
    entries = catalog.load([bundled("catalog")])
    sources = Sources(store, False, None, None)
    how = "host memory to a card" if device.kind == "cuda" else "host memory to host memory: no card here"
    print(f"{how}; goal: restore <= {RATIO} x copy + {1000 * SLACK:.0f} ms; medians of {times}, ms")
    print(
        f"{'model':30} {'MiB':>6} {'park':>8} {'restore':>8} {'copy':>8} {'GiB/s':>7} {'ratio':>6} "
        f"{'goal':>5} {'disk':>8} {'reads':>6}"
    )
    specs = [entries.models[name] for name in MODELS]
    met = [await swap(device, spec, sources.locate(spec), times) for spec in specs]
    print("disk: a load from files, and how many times it takes to read them")
    return all(met)


async def opened() -> Device:
    if torch.cuda.is_available():
        from engine.devices.cuda import Cuda

        return Cuda(0, slots=1, memory=None)
    cpu = Cpu(slots=1, memory=None, threads_per_slot=1)
    await cpu.open()
    return cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=Path("~/.cache/serai").expanduser())
    parser.add_argument("--times", type=int, default=5)
    chosen = parser.parse_args()
    sys.exit(not anyio.run(partial(measure, chosen.store, chosen.times)))


if __name__ == "__main__":
    main()
