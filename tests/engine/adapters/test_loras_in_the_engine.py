"""A real encoder with two adapters on a device that has room for one of them beside it."""

from __future__ import annotations

from pathlib import Path

import anyio
import numpy as np
import pytest
import torch
import transformers as tf

from engine.config import Settings
from engine.devices.cpu import Cpu
from engine.errors import InvalidInput
from engine.offload import Threads
from engine.parts import Parts
from engine.requests import Encoded, EncodeOptions, Item, Request, Task
from engine.running import Engine, open_engine
from tests.engine.actors.conftest import REAL_CLOCK
from tests.engine.adapters import tiny_loras
from tests.engine.adapters.test_lora import means
from tests.engine.adapters.tiny_texts import FAMILIES, TEXTS, entry, saved
from tests.simulation import catalog

pytestmark = [pytest.mark.anyio, REAL_CLOCK]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("engine")
    base = saved(FAMILIES["bert"](), folder / "base")
    given = {"r": 16, "lora_alpha": 8, "target_modules": ["query", "key", "value"]}
    loras = {
        name: tiny_loras.save(base, folder / name, tf.AutoModel, seed, **given)
        for seed, name in enumerate(("legal", "medical"))
    }
    foreign = {"r": 4, "lora_alpha": 8, "target_modules": ["query"]}
    config = FAMILIES["bert"]()
    config.hidden_size = 64
    other = saved(config, folder / "other")
    return {
        "base": base,
        **loras,
        "foreign": tiny_loras.save(other, folder / "bad", tf.AutoModel, 9, **foreign),
    }


@torch.inference_mode()
def merged(places: dict[str, Path], name: str) -> np.ndarray:
    """What the base gives when PEFT has merged the adapter into its weights."""
    return means(tiny_loras.reference(places["base"], places[name], tf.AutoModel).merge_and_unload())


async def vectors(served: Engine, lora: str | None) -> np.ndarray:
    items = tuple(Item(text=text) for text in TEXTS)
    asked = Request(f"q {lora}", Task.ENCODE, "tiny", items, EncodeOptions(lora=lora))
    outputs = (await served.submit(asked)).outputs
    assert all(isinstance(output, Encoded) for output in outputs)
    return np.stack([output.dense for output in outputs])  # type: ignore[union-attr]


async def test_adapters_that_turn_each_other_out_give_what_peft_gives_each_time(places: dict[str, Path]):
    loras = {name: path for name, path in places.items() if name != "base"}
    spec = tiny_loras.with_loras(entry(id="tiny", devices=("cpu",)), loras)
    family = tiny_loras.of(spec)
    base = family.footprint(spec, places["base"])
    one = family.adapter_footprint(spec, "legal", places["base"]).weights_bytes
    batch = base.workspace(sum(len(text.split()) + 2 for text in TEXTS))
    # A batch's room has place for none of them: it is the adapters that have to change places.
    room = base.weights_bytes + one + max(batch, base.workspace(1 << 13)) + one // 2
    cpu = Cpu("cpu", slots=1, memory=room, threads_per_slot=1)
    parts = Parts((cpu,), lambda entry: places["base"], lambda name: family, Threads(2), Threads(1))
    expected = {name: merged(places, name) for name in ("legal", "medical")}
    expected["None"] = means(tf.AutoModel.from_pretrained(places["base"]).eval())

    async with open_engine(
        Settings(devices="cpu", headroom=0.0, min_residency=0.0), catalog(spec), parts
    ) as served:
        for lora in ("legal", None, "medical", "legal", None, "medical"):
            assert np.abs(await vectors(served, lora) - expected[str(lora)]).max() <= 1e-5
        changed = [(c.event, c.unit) for c in served.closely.journal.changes]
        found: dict[str, np.ndarray] = {}

        async def ask(lora: str) -> None:
            found[lora] = await vectors(served, lora)

        async with anyio.create_task_group() as tasks:
            for lora in expected.keys() - {"None"}:
                tasks.start_soon(ask, lora)
        with pytest.raises(InvalidInput, match="made for another"):
            await vectors(served, "foreign")
        held = {owner: size for line, owner, size in served.closely.ledger("cpu") if line == "weights"}

    assert changed.count(("evicted", "tiny:legal")) >= 2 and ("evicted", "tiny") not in changed
    for lora, rows in found.items():
        assert np.abs(rows - expected[lora]).max() <= 1e-5
    assert held["tiny"] == base.weights_bytes and sum(held.values()) == base.weights_bytes + one
