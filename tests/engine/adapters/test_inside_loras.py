"""Adapters that lie in the base's own checkpoint, by role and by request, as jina-embeddings-v3 has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.adapters.forward.weights import BadWeights
from engine.config import Settings
from engine.devices.cpu import Cpu
from engine.errors import InvalidInput
from engine.offload import Threads
from engine.parts import Parts
from engine.requests import EncodeOptions, Item, Request, ScoreOptions, Task
from engine.running import open_engine
from tests.engine.actors.conftest import REAL_CLOCK
from tests.engine.adapters import published, tiny_loras
from tests.engine.adapters.published import ADAPTERS
from tests.engine.adapters.tiny_texts import TEXTS, entry
from tests.simulation import catalog

ROLES = {"query": "retrieval.query", "document": "retrieval.passage"}
PROMPTS = {"query": "w50 w51 ", "document": "w52 ", "text-matching": "", "separation": "w53 "}


class V3:
    """The tiny checkpoint behind an entry like the bundled one, driven as the engine drives it."""

    def __init__(self, path: Path, adapters: dict[str, str] | None = None, **given: Any) -> None:
        options = {"adapters": ROLES if adapters is None else adapters}
        fields = {"pooling": "mean", "prompts": PROMPTS, "options": options} | given
        self.spec = tiny_loras.with_loras(entry(**fields), dict.fromkeys(ADAPTERS, path))
        family = tiny_loras.of(self.spec)
        self.base_bytes = family.footprint(self.spec, path).weights_bytes
        self.adapter_bytes = sum(
            family.adapter_footprint(self.spec, name, path).weights_bytes for name in ADAPTERS
        )
        self.preparer = family.preparer(self.spec, path)
        self.model: Any = family.load(self.spec, path, "cpu")
        for name in ADAPTERS:
            self.model.bring(name)

    def jobs(self, texts: list[str], **asked: Any) -> list[Any]:
        items = [Item(text=text) for text in texts]
        return list(self.preparer.prepare(Task.ENCODE, items, EncodeOptions(**asked)))

    def pairs(self, texts: list[str], **asked: Any) -> list[Any]:
        items = [Item(text=text) for text in texts]
        options = ScoreOptions(query=Item(text="w1 w2"), **asked)
        return list(self.preparer.prepare(Task.SCORE, items, options))


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    return published.flash(adapted=True, positions=False)


@pytest.fixture(scope="module")
def path(tensors: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published.saved(published.TURNED, tensors, tmp_path_factory.mktemp("v3"))


@pytest.fixture(scope="module")
def v3(path: Path) -> V3:
    return V3(path)


def dense(outputs: Any) -> np.ndarray:
    return np.stack([output.dense for output in outputs])


@torch.inference_mode()
def expected(tensors: dict[str, torch.Tensor], jobs: list[Any], adapter: str | None) -> np.ndarray:
    rows = [
        published.read_flash(tensors, torch.from_numpy(job.payload.ids).long(), adapter).mean(0)
        for job in jobs
    ]
    return torch.nn.functional.normalize(torch.stack(rows)).numpy()


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_changes_layers_and_embeddings_as_published(
    v3: V3, tensors: dict[str, torch.Tensor], name: str, compared: Callable[..., None]
):
    jobs = v3.jobs(TEXTS, lora=name)

    vectors = dense(v3.model.run(jobs))

    theirs = expected(tensors, jobs, name)
    assert np.abs(vectors - theirs).max() <= 1e-5
    alone = [v3.model.run([job])[0].dense for job in jobs]
    model = f"tiny jina-embeddings-v3, adapter {name}"
    compared("text_encoder", model, "published arithmetic", vectors, theirs, alone)
    assert np.abs(vectors - expected(tensors, jobs, None)).max() > 1e-2


def test_each_role_reads_with_its_own_adapter_and_prompt(v3: V3, tensors: dict[str, torch.Tensor]):
    queries, documents = v3.jobs(TEXTS, is_query=True), v3.jobs(TEXTS)

    found = dense(v3.model.run([*queries, *documents]))

    theirs = [
        expected(tensors, queries, "retrieval.query"),
        expected(tensors, documents, "retrieval.passage"),
    ]
    assert np.abs(found - np.concatenate(theirs)).max() <= 1e-5
    assert [len(q.payload.ids) - len(d.payload.ids) for q, d in zip(queries, documents, strict=True)] == [
        1
    ] * 6


def test_an_adapter_has_the_prompt_of_its_name(v3: V3):
    bare, prompted = v3.jobs(["w1"], lora="text-matching"), v3.jobs(["w1"], lora="separation")
    without = v3.jobs(["w1"], lora="classification")  # none of its name: the role's

    assert [len(jobs[0].payload.ids) for jobs in (bare, prompted, without)] == [3, 4, 4]


def test_all_adapters_share_one_pass_and_equal_solo_runs(v3: V3):
    jobs = [job for name in (None, *ADAPTERS) for job in v3.jobs(TEXTS, lora=name)]
    jobs = [jobs[place] for place in np.random.default_rng(0).permutation(len(jobs))]
    alone = dense([v3.model.run([job])[0] for job in jobs])
    passes: list[int] = []
    hook = v3.model._model.network.register_forward_hook(lambda *_: passes.append(1))

    together = dense(v3.model.run(jobs))
    hook.remove()

    assert len(passes) == 1
    assert np.abs(together - alone).max() <= 1e-5


def test_a_query_and_the_documents_it_is_compared_with_have_two_adapters(
    v3: V3, tensors: dict[str, torch.Tensor]
):
    pairs = v3.pairs(TEXTS)
    asked, documents = v3.jobs(["w1 w2"], is_query=True), v3.jobs(TEXTS)

    scores = [output.score for output in v3.model.run(pairs)]
    alone = [v3.model.run([pair])[0].score for pair in pairs]

    query = expected(tensors, asked, "retrieval.query")
    theirs = expected(tensors, documents, "retrieval.passage") @ query[0]
    assert scores == pytest.approx(theirs.tolist(), abs=1e-5)
    assert scores == pytest.approx(alone, abs=1e-5)
    same = [output.score for output in v3.model.run(v3.pairs(TEXTS, lora="text-matching"))]
    assert same != pytest.approx(scores, abs=1e-3)


def test_the_ledger_is_told_of_the_base_and_of_its_adapters_apart(v3: V3, tensors: dict[str, torch.Tensor]):
    beside = {n: t.nbytes for n, t in tensors.items() if "lora_" in n and "pooler" not in n}
    base = sum(t.nbytes for n, t in tensors.items() if "lora_" not in n and "pooler" not in n)
    # the fused layer's first matrix is held once for each of its three
    fused = sum(n for name, n in beside.items() if "Wqkv" in name and name.endswith("lora_A"))

    held = sum(tensor.nbytes for name, tensor in v3.model.tensors().items() if name.startswith("adapters."))

    assert v3.base_bytes == base
    assert v3.adapter_bytes == held == sum(beside.values()) + 2 * fused


def test_what_cannot_be_is_said(path: Path, tmp_path: Path):
    with pytest.raises(BadWeights, match=r"adapters name unheard-of, which its loras do not have"):
        V3(path, adapters={"query": "unheard-of"})
    spec = tiny_loras.with_loras(entry(), {"unheard-of": path})
    preparer = tiny_loras.of(spec).preparer(spec, path)
    with pytest.raises(InvalidInput, match="holds no adapter unheard-of; it holds: retrieval"):
        preparer.prepare(Task.ENCODE, [Item(text="w1")], EncodeOptions(lora="unheard-of"))


@pytest.mark.anyio
@REAL_CLOCK
async def test_a_role_brings_its_adapter_through_the_whole_engine(
    path: Path, tensors: dict[str, torch.Tensor], v3: V3
):
    spec = v3.spec.model_copy(update={"id": "tiny", "devices": ("cpu",)})
    cpu = Cpu("cpu", slots=1, memory=1 << 30, threads_per_slot=1)
    family = tiny_loras.of(spec)
    parts = Parts((cpu,), lambda _: path, lambda _: family, Threads(2), Threads(1))
    items = tuple(Item(text=text) for text in TEXTS)

    async with open_engine(Settings(devices="cpu", headroom=0.0), catalog(spec), parts) as served:
        asked = Request("q", Task.ENCODE, "tiny", items, EncodeOptions(is_query=True))
        found = [output.dense for output in (await served.submit(asked)).outputs]
        scored = Request("s", Task.SCORE, "tiny", items, ScoreOptions(query=Item(text="w1 w2")))
        scores = [output.score for output in (await served.submit(scored)).outputs]
        held = {owner for line, owner, _ in served.closely.ledger("cpu") if line == "weights"}

    theirs = expected(tensors, v3.jobs(TEXTS, is_query=True), "retrieval.query")
    assert np.abs(np.stack(found) - theirs).max() <= 1e-5
    alone = [v3.model.run([pair])[0].score for pair in v3.pairs(TEXTS)]
    assert scores == pytest.approx(alone, abs=1e-5)
    assert held == {"tiny", "tiny:retrieval.query", "tiny:retrieval.passage"}
