"""A model for a task: of those that run here, by where they are, their size and their licence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from sie_sdk import SIEClient
from sie_sdk.client.errors import RequestError

from engine.catalog import Catalog, ModelSpec
from engine.config import Settings
from engine.requests import Task
from engine.view import DeviceView, EngineView, ModelView
from tests.web.conftest import serving
from tests.web.fakes import FakeEngine, FakeSizes, spec

pytestmark = pytest.mark.anyio

SIZES = {"org/small": 10, "org/large": 1000, "org/closed": 5, "org/paused": 1, "org/card": 2}


class Engine(FakeEngine):
    resident: str = ""

    def view(self) -> EngineView:
        models = [ModelView("org/paused", "available", paused=True), ModelView("org/failed", "failed")]
        models += [ModelView(self.resident, "loaded")] if self.resident else []
        return EngineView(tuple(models), (DeviceView("cpu", "cpu", 4000, 3000),))


def entry(place: Path, name: str, **fields: Any) -> ModelSpec:
    folder = place / name
    if name != "org/elsewhere":
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"x")
    fields = {"licence": "MIT", "sources": [{"directory": str(folder)}], **fields}
    return spec(name, Task.SCORE, **fields)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    names = ("org/elsewhere", "org/large", "org/small", "org/paused", "org/failed", "org/unseen")
    specs = [entry(tmp_path, name) for name in names]
    specs += [entry(tmp_path, "org/closed", licence="CC-BY-NC-4.0")]
    specs += [entry(tmp_path, "org/card", devices=["cuda"])]
    made = Catalog({each.id: each for each in specs}, {"pick": "org/small"})
    return Engine(settings=Settings(store=tmp_path / "store"), catalog=made, sizes=FakeSizes(known=SIZES))


async def ask(engine: FakeEngine, task: str, **more: Any) -> Any:
    def drive(url: str) -> Any:
        with SIEClient(url) as client:
            return client.recommend(task, **more)

    async with serving(engine) as url:
        return await to_thread.run_sync(drive, url)


async def test_the_smallest_is_fast_the_largest_best_and_no_quality_is_claimed(engine):
    said = await ask(engine, "rerank", target_language="de_DE")

    assert (said["task"], said["basis"], said["shared_benchmarks"]) == ("rerank", "no_evidence", [])
    assert (said["fast"]["model"], said["fast"]["alias"]) == ("org/small", "pick")
    assert (said["best"]["model"], said["best"]["alias"]) == ("org/large", None)
    assert said["best"]["available"] and not said["best"]["evidence_guarded"]
    assert (said["best"]["weights_bytes"], said["best"]["licence"]) == (1000, "MIT")


async def test_what_finds_no_room_is_not_recommended(engine):
    engine.sizes.room = 500
    assert (await ask(engine, "rerank"))["best"]["model"] == "org/small"


async def test_what_cannot_be_read_is_not_recommended(engine):
    engine.sizes.known = {}
    assert "fast" not in await ask(engine, "rerank")


async def test_what_is_resident_answers_soonest(engine):
    engine.resident = "org/large"

    assert (await ask(engine, "score"))["fast"]["model"] == "org/large"


async def test_where_nothing_for_the_task_runs_there_is_no_pick(engine):
    said = await ask(engine, "generate")

    assert said["label"] and "fast" not in said and "best" not in said


async def test_an_unknown_task_is_told_the_known_ones(engine):
    with pytest.raises(RequestError, match="rerank") as raised:
        await ask(engine, "alchemy")

    assert raised.value.status_code == 404
