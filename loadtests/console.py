"""`python -m loadtests.console`: what the console costs, and how quick and how small it stays.

Simulated models behind the real server and console. With 500 models and 50 requests a second among 50 of
them, how long pages take and how much a tab is sent; with 200 models, how much of a core three tabs add to
the same server without any. Who watches is another process, so that its work is not counted. The
objectives are pages under 300 ms (the median of each), a stream under 50 kB/s and less than 2 % of a core.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from aiohttp import ClientSession, ClientTimeout

from engine.engine import Engine
from loadtests.tables import percentile, table, verdict
from tests.simulation import MIB, catalog, engine, model, request
from tests.web.conftest import serving

PAGE, STREAM, CORE = 0.3, 50_000.0, 0.02
CHANGES = 50
"""Models that are called, each once a second."""
MODELS, FEWER, TABS, ROUNDS = 500, 200, 3, 3


@dataclass(frozen=True, slots=True)
class Seen:
    pages: dict[str, float]
    """Seconds, the median of five."""
    bytes_per_second: float
    """Of one tab's stream."""


@asynccontextmanager
async def served(models: int) -> AsyncIterator[tuple[str, Engine, list[str]]]:
    names = [f"organisation/model-with-a-name-{n:03}" for n in range(models)]
    entries = catalog(*(model(name, options={"load_seconds": 0.0}) for name in names))
    async with engine(entries, memory=100_000 * MIB, loads_at_once=50) as opened, serving(opened) as url:  # type: ignore[arg-type]
        yield url, opened, names


async def drive(opened: Engine, names: list[str], seconds: float) -> None:
    """Each model once a second, evenly spread."""
    end, step = time.monotonic() + seconds, 0
    async with anyio.create_task_group() as tasks:
        while time.monotonic() < end:
            tasks.start_soon(opened.submit, request(names[step % len(names)], "hello " * 10))
            step += 1
            await anyio.sleep(1 / len(names))


async def watch(url: str, seconds: float) -> int:
    """Bytes that a tab on the overview was sent."""
    async with ClientSession(url, timeout=ClientTimeout(None)) as http:
        async with http.get("/", headers={"Accept": "text/html"}) as page:
            query = (await page.text()).partition("/console/live?")[2].partition('"')[0].replace("&amp;", "&")
        received = 0
        async with http.get(f"/console/live?{query}") as stream:
            with anyio.move_on_after(seconds):
                async for piece in stream.content.iter_any():
                    received += len(piece)
    return received


async def seen(models: int, seconds: float) -> Seen:
    async with served(models) as (url, opened, names), anyio.create_task_group() as tasks:
        tasks.start_soon(drive, opened, names[:CHANGES], seconds + 2)
        received = await watch(url, seconds)
        paths = [
            "/",
            "/?sort=waiting&page=2",
            "/console/queues",
            "/console/devices",
            f"/console/models/{names[3]}",
        ]
        pages = {path.replace(names[3], "..."): await timed(url, path) for path in paths}
    return Seen(pages, received / seconds)


async def timed(url: str, path: str) -> float:
    taken = []
    async with ClientSession(url) as http:
        for _ in range(5):
            began = time.monotonic()
            async with http.get(path, headers={"Accept": "text/html"}) as page:
                assert page.status == 200, await page.text()
                await page.read()
            taken.append(time.monotonic() - began)
    return percentile(taken, 0.5)


async def added(models: int, tabs: int, seconds: float) -> float:
    """Share of a core that so many tabs add: the same traffic without and with them, the median of three."""
    found = []
    async with served(models) as (url, opened, names):
        await drive(opened, names[:CHANGES], 1.0)
        for _ in range(ROUNDS):
            alone = await spent(opened, names[:CHANGES], seconds)
            async with watchers(url, tabs):
                await drive(opened, names[:CHANGES], 2.0)
                found.append((await spent(opened, names[:CHANGES], seconds) - alone) / seconds)
    return percentile(found, 0.5)


@asynccontextmanager
async def watchers(url: str, tabs: int) -> AsyncIterator[None]:
    command = [sys.executable, "-m", "loadtests.console", "--watch", url]
    running = [await asyncio.create_subprocess_exec(*command) for _ in range(tabs)]
    try:
        yield
    finally:
        for each in running:
            each.terminate()
            await each.wait()


async def spent(opened: Engine, names: list[str], seconds: float) -> float:
    began = time.process_time()
    await drive(opened, names, seconds)
    return time.process_time() - began


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--watch", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.watch:
        asyncio.run(watch(chosen.watch, 3600.0))
        return 0
    found = asyncio.run(seen(MODELS, chosen.seconds))
    core = asyncio.run(added(FEWER, TABS, chosen.seconds))
    measured = [
        *((f"page {path}", taken, PAGE, "s") for path, taken in found.pages.items()),
        ("stream of a tab", found.bytes_per_second, STREAM, "B/s"),
        (f"{TABS} tabs on {FEWER} models", core, CORE, "of a core"),
    ]
    rows = [[what, f"{was:.3g} {unit}", f"{was / most:.2f}"] for what, was, most, unit in measured]
    print(table(["what", "was", "of what it may"], rows))
    return verdict([f"{what}: {was:.3g} {unit}" for what, was, most, unit in measured if was >= most])


if __name__ == "__main__":
    sys.exit(main())
