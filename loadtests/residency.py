"""What the engine adds to a bare forward pass, and what it takes to evict a model and bring it back.

Two tables from one run of one process: the median latency of one text at a time against the model's own
forward pass on the same texts, in turns; and seconds to reload MiniLM against its bytes over the memory
bandwidth probed in between. `python -m loadtests.residency --store DIR`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import anyio
import numpy as np
from anyio import to_thread

from engine import catalog
from engine.adapters.family import family
from engine.config import Settings
from engine.engine import Engine
from engine.requests import EncodeOptions, Item, Request, Task
from engine.resources import bundled
from engine.running import open_engine
from engine.sources.locate import Sources
from loadtests.servers import MODEL
from loadtests.serving import texts

GOAL = 1.3
"""Median latency over the bare forward's."""


async def latency(engine: Engine, store: Path, count: int) -> float:
    """The ratio of medians, one text at a time."""
    spec = engine.catalog.models[MODEL]
    path = Sources(store, False, None, None).locate(spec)
    preparer, model = family(spec.family).preparer(spec, path), family(spec.family).load(spec, path, "cpu")
    ours, bare = [], []
    for text in texts(count, seed=1):
        items, options = (Item(text=text),), EncodeOptions()
        began = time.perf_counter()
        await engine.submit(Request("", Task.ENCODE, MODEL, items, options))
        ours.append(time.perf_counter() - began)
        prepared = preparer.prepare(Task.ENCODE, items, options)
        began = time.perf_counter()
        await to_thread.run_sync(model.run, prepared)
        bare.append(time.perf_counter() - began)
    ratio = statistics.median(ours) / statistics.median(bare)
    print(
        f"one text: {1000 * statistics.median(ours):.2f} ms through the engine, "
        f"{1000 * statistics.median(bare):.2f} ms the bare forward: {ratio:.2f} (goal {GOAL})"
    )
    return ratio


async def reload(engine: Engine, times: int) -> None:
    """Seconds of an unload and a load, and the model's bytes over the bandwidth of a copy."""
    await engine.load(MODEL)
    (size,) = [r.weights_bytes for m in engine.view().models if m.id == MODEL for r in m.residencies]
    loads, unloads, bandwidths = [], [], []
    source = np.ones(64 * 2**20, np.uint8)
    for _ in range(times):
        began = time.perf_counter()
        await engine.unload(MODEL)
        unloads.append(time.perf_counter() - began)
        began = time.perf_counter()
        await engine.load(MODEL)
        loads.append(time.perf_counter() - began)
        began = time.perf_counter()
        source.copy()
        bandwidths.append(source.nbytes / (time.perf_counter() - began))
    limit = size / statistics.median(bandwidths)
    print(
        f"MiniLM, {size / 2**20:.0f} MiB: unload {1000 * statistics.median(unloads):.0f} ms, "
        f"load {1000 * statistics.median(loads):.0f} ms, {statistics.median(loads) / limit:.1f} times "
        f"a copy of its bytes at {statistics.median(bandwidths) / 2**30:.1f} GiB/s ({1000 * limit:.0f} ms)"
    )


async def measure(store: Path, count: int, times: int) -> bool:
    with tempfile.TemporaryDirectory() as state:
        settings = Settings.model_validate(
            {"devices": "cpu", "memory": 2**31, "store": store, "state_dir": state}
        )
        async with open_engine(settings, catalog.load([bundled("catalog")])) as engine:
            await engine.load(MODEL)
            ratio = await latency(engine, store, count)
            await reload(engine, times)
    return ratio <= GOAL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=Path("~/.cache/serai").expanduser())
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--times", type=int, default=10)
    chosen = parser.parse_args()
    sys.exit(not anyio.run(partial(measure, chosen.store, chosen.texts, chosen.times)))


if __name__ == "__main__":
    main()
