"""Five hundred models and fifty changes a second: what a tab is sent, and how long a page takes."""

from __future__ import annotations

import time

import anyio
import pytest

from tests import simulation
from tests.web.console.conftest import console
from tests.web.console.test_live import watching

pytestmark = [pytest.mark.anyio, pytest.mark.alone]

MODELS, CHANGES, SECONDS = 500, 50, 4


async def test_a_stream_stays_small_and_pages_quick():
    names = [f"org/model-with-a-name-{n:03}" for n in range(MODELS)]
    async with console(*names, memory=100_000 * simulation.MIB, loads_at_once=50) as seen:
        busy = names[:CHANGES]
        async with anyio.create_task_group() as tasks:
            for name in busy:
                tasks.start_soon(seen.engine.load, name)
        query = (await seen.page("/")).partition("/console/live?")[2].partition('"')[0].replace("&amp;", "&")
        taken = []
        async with watching(seen.http, query) as stream, anyio.create_task_group() as tasks:

            async def work(name: str) -> None:
                for _ in range(SECONDS):
                    await seen.engine.submit(simulation.request(name, "hello " * 10))
                    await anyio.sleep(1.0)

            for name in busy:
                tasks.start_soon(work, name)
            with anyio.move_on_after(SECONDS):
                while True:
                    await stream.event("cells")
                    stream_bytes = stream.bytes
        paths = ["/", "/?q=name-4&sort=waiting", "/console/queues", "/console/devices"]
        for path in (*paths, f"/console/models/{names[3]}"):
            began = time.monotonic()
            await seen.page(path)
            taken.append((time.monotonic() - began, path))

    assert stream_bytes / SECONDS < 50_000
    assert sorted(seconds for seconds, _ in taken)[len(taken) // 2] < 0.3, taken
