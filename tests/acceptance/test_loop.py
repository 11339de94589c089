"""A long text or a long document keeps the event loop from nobody."""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import pytest

from engine import catalog
from engine.config import Settings
from engine.requests import EncodeOptions, Extracted, ExtractOptions, Item, Media, Options, Request, Task
from engine.running import open_engine
from tests import weights as stored
from tests.acceptance.asking import DOCUMENTS, MINILM
from tests.engine.adapters.papers import policy_pdf
from tests.web.test_large import watched

pytestmark = [pytest.mark.anyio, pytest.mark.alone]

LONGEST = 0.05
"""Seconds that the loop may work without a pause."""
BLOCKED = 0.5
"""Seconds of the clock in which it may not run, on a machine that has other things to do."""


class Clock:
    """The longest time between two turns of the loop, whoever held the interpreter meanwhile."""

    longest = 0.0

    async def run(self) -> None:
        while True:
            began = time.perf_counter()
            await anyio.sleep(0.001)
            self.longest = max(self.longest, time.perf_counter() - began)


CASES = {
    "2 MB of text": (Task.ENCODE, MINILM, Item(text="a parcel for the harbour " * 80_000), EncodeOptions()),
    "100 pages": (Task.EXTRACT, DOCUMENTS, Item(document=Media(policy_pdf(100), "pdf")), ExtractOptions()),
}


@pytest.fixture
async def engine(tmp_path: Path, anyio_backend: str):
    for model in (MINILM, DOCUMENTS):
        stored.weights(model)
    settings = Settings.model_validate(
        {"devices": "cpu", "memory": 2**31, "store": stored.test_sources().store.root, "state_dir": tmp_path}
    )
    entries = catalog.load([Path(__file__).parents[2] / "catalog"])
    async with open_engine(settings, entries) as running:
        yield running


@pytest.mark.parametrize("case", CASES)
async def test_what_is_long_does_not_hold_the_loop(engine, case: str) -> None:
    task, model, item, options = CASES[case]
    short = Item(text="a") if task is Task.ENCODE else Item(document=Media(b"# a", "md"))

    def request(one: Item, asked: Options) -> Request:
        return Request("", task, model, (one,), asked)

    await engine.submit(request(short, options))
    clock = Clock()
    async with watched() as watchdog, anyio.create_task_group() as tasks:
        tasks.start_soon(clock.run)
        response = await engine.submit(request(item, options))
        tasks.cancel_scope.cancel()

    assert not isinstance(response.outputs[0], Exception), response.outputs[0]
    if task is Task.EXTRACT:
        assert isinstance(response.outputs[0], Extracted) and response.usage.pages == 100
    assert watchdog.longest < LONGEST
    assert clock.longest < BLOCKED
