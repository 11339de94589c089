"""An adapter that raises, answers too little or gives NaN hurts the request that made it, and no other."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import anyio
import numpy as np
import pytest
from aiohttp import ClientSession

from engine.adapters.family import Footprint, Prepared
from engine.catalog import Catalog, ModelSpec
from engine.config import Settings
from engine.devices.cpu import Cpu
from engine.errors import EngineError, InferenceFailed
from engine.offload import Threads
from engine.parts import Parts
from engine.requests import Encoded, Extracted, Item, Options, Output, Scored, Task
from engine.running import open_engine
from tests import simulation
from tests.web.conftest import serving

pytestmark = pytest.mark.anyio

FAULTS = ("raise", "short", "nan", "error", "none")
TASKS = ("encode", "score", "extract")


@dataclass
class Adapter:
    """A family and its only model. A text that begins with a fault's name makes the batch show it.

    `seen` holds the texts of each batch. The first batch waits until `release` is set, so that what
    comes meanwhile is in one batch.
    """

    cost_unit: ClassVar[str] = "texts"
    tasks: ClassVar[frozenset[Task]] = frozenset(Task)
    seen: list[list[str]] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        return Footprint(1000)

    def preparer(self, spec: ModelSpec, path: Path) -> Adapter:
        return self

    def load(self, spec: ModelSpec, path: Path, device: str) -> Adapter:
        return self

    def unload(self) -> None:
        pass

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        return [Prepared(1, (task, item.text or ""), 1) for item in items]

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        texts = [job.payload[1] for job in jobs]
        self.seen.append(texts)
        if texts == ["gate"]:
            assert self.release.wait(60)
        if any(text.startswith("raise") for text in texts):
            raise RuntimeError("the adapter broke")
        outputs = [_output(*job.payload) for job in jobs]
        if any(text.startswith("short") for text in texts):
            return outputs[:-1]
        return outputs


def _output(task: Task, text: str) -> Output | EngineError:
    fault, number = text.split(" ")[0], float(len(text))
    if fault == "error":
        return InferenceFailed("this input alone")
    if fault == "none":
        return None  # type: ignore[return-value]  # an adapter's bug
    if fault == "nan":
        number = float("nan")
    if task is Task.ENCODE:
        return Encoded(dense=np.full(8, number, np.float32))
    if task is Task.SCORE:
        return Scored(number)
    return Extracted(data={"length": number})


@pytest.fixture
def adapter() -> Adapter:
    return Adapter()


@pytest.fixture
async def http(adapter: Adapter, anyio_backend: str):
    models = [simulation.model(f"a/{task}", (task,), family="own", devices=["cpu"]) for task in TASKS]
    cpu = Cpu(slots=1, memory=2**20, threads_per_slot=1)
    parts = Parts((cpu,), lambda spec: Path("/"), lambda name: adapter, Threads(2), Threads(2))
    catalog = Catalog({spec.id: spec for spec in models}, {})
    settings = Settings(devices="cpu", slots=1)
    async with open_engine(settings, catalog, parts) as engine, serving(engine) as url:
        async with ClientSession(url, headers={"Accept": "application/json"}) as session:
            yield session


async def ask(http: ClientSession, task: str, *texts: str) -> tuple[int, dict]:
    body = {"items": [{"text": text} for text in texts]}
    if task == "score":
        body["query"] = {"text": "q"}
    async with http.post(f"/v1/{task}/a/{task}", json=body) as answer:
        return answer.status, await answer.json()


async def in_one_batch(http: ClientSession, adapter: Adapter, task: str, requests: list[list[str]]) -> list:
    """The answers to these requests, all of which were in the queue when a batch was formed."""
    answers = [None] * len(requests)

    async def call(place: int, texts: list[str]) -> None:
        answers[place] = await ask(http, task, *texts)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, http, task, "gate")
        await waiting(lambda: ["gate"] in adapter.seen)
        for place, texts in enumerate(requests):
            tasks.start_soon(call, place, texts)
        texts = sorted(text for texts in requests for text in texts)
        await shown(http, f'serai_waiting_jobs{{class="standard",model="a/{task}"}} {len(texts)}.0')
        adapter.release.set()
    assert sorted(adapter.seen[1]) == texts, "they were not in one batch"
    return answers


async def waiting(condition) -> None:
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110  what is waited for is on another thread
            await anyio.sleep(0.01)


async def shown(http: ClientSession, line: str) -> None:
    """Returns when the metrics have this line."""
    with anyio.fail_after(60):
        while True:
            async with http.get("/metrics") as answer:
                if line in await answer.text():
                    return
            await anyio.sleep(0.01)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("task", ["encode", "score"])
async def test_a_fault_fails_its_request_by_the_items_index_and_no_other(http, adapter, task, fault):
    requests = [["one"], ["two", f"{fault} it", "six"], ["three"], ["four", "five"]]

    answers = await in_one_batch(http, adapter, task, requests)

    status, body = answers[1]
    assert (status, body["detail"]["code"], body["detail"]["item"]) == (500, "INFERENCE_ERROR", 1), body
    assert [status for status, _ in answers] == [200, 500, 200, 200]
    assert [lengths(body) for _, body in (answers[0], *answers[2:])] == [[3.0], [5.0], [4.0, 4.0]]


@pytest.mark.parametrize("fault", ["raise", "short", "error", "none"])
async def test_on_extract_a_fault_is_on_its_item(http, adapter, fault):
    requests = [["one"], ["two", f"{fault} it", "six"], ["three"]]

    answers = await in_one_batch(http, adapter, "extract", requests)

    assert [status for status, _ in answers] == [200, 200, 200]
    items = answers[1][1]["items"]
    assert [item.get("error", {}).get("code") for item in items] == [None, "INFERENCE_ERROR", None]
    assert [items[0]["data"], items[2]["data"]] == [{"length": 3.0}, {"length": 3.0}]
    assert answers[0][1]["items"][0]["data"] == {"length": 3.0}


async def test_the_other_jobs_of_a_request_that_failed_are_dropped(http, adapter):
    """One batch takes at most so many; the rest of the request is still in the queue when it fails."""
    texts = ["raise at once", *[f"later {n}" for n in range(5000 - 1)]]

    status, body = await ask(http, "encode", *texts)

    assert (status, body["detail"]["item"]) == (500, 0)
    await shown(http, 'serai_device_busy_slots{device="cpu"} 0.0')
    ran = {text for batch in adapter.seen for text in batch}
    assert len(ran) < len(texts)
    assert (await ask(http, "encode", "fine"))[0] == 200


def lengths(body: dict) -> list[float]:
    if "scores" in body:
        ranked = sorted(body["scores"], key=lambda one: one["item_id"])
        return [one["score"] for one in ranked]
    return [item["dense"]["values"][0] for item in body["items"]]
