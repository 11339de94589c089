"""Three servers of one model behind the same minimal handler, to be measured against each other.

`POST /embed` takes a text as its body and answers with the vector's bytes. Behind it:
`serai`, the engine as it is; `pooled`, sentence-transformers' `encode` for each request in a pool of two
threads; `padded`, dynamic batches of up to 32 in order of arrival, padded to the longest, two threads.
Every thread has one torch thread. `python -m loadtests.servers KIND --store DIR` prints its port.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from engine import catalog
from engine.config import Settings
from engine.requests import Encoded, EncodeOptions, Item, Request, Task
from engine.resources import bundled
from engine.running import open_engine
from engine.sources.locate import Sources

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
THREADS = 2
BATCH = 32

Embed = Callable[[str], Awaitable[NDArray[np.float32]]]


@asynccontextmanager
async def serai(store: Path) -> AsyncIterator[Embed]:
    with tempfile.TemporaryDirectory() as state:
        settings = Settings.model_validate(
            {"devices": "cpu", "slots": THREADS, "memory": 2**31, "store": store, "state_dir": state}
        )
        async with open_engine(settings, catalog.load([bundled("catalog")])) as engine:
            await engine.load(MODEL)

            async def embed(text: str) -> NDArray[np.float32]:
                request = Request("", Task.ENCODE, MODEL, (Item(text=text),), EncodeOptions())
                (output,) = (await engine.submit(request)).outputs
                assert isinstance(output, Encoded) and output.dense is not None
                return output.dense

            yield embed


@asynccontextmanager
async def pooled(store: Path) -> AsyncIterator[Embed]:
    model, pool = _reference(store), ThreadPoolExecutor(THREADS)
    loop = asyncio.get_running_loop()

    async def embed(text: str) -> NDArray[np.float32]:
        return await loop.run_in_executor(pool, lambda: model.encode(text, show_progress_bar=False))

    yield embed
    pool.shutdown()


@asynccontextmanager
async def padded(store: Path) -> AsyncIterator[Embed]:
    """A batch leaves as soon as a thread is free: no window, so that nothing waits for company."""
    model, pool = _reference(store), ThreadPoolExecutor(THREADS)
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[str, asyncio.Future[NDArray[np.float32]]]] = asyncio.Queue()

    async def work() -> None:
        while True:
            batch = [await waiting.get()]
            while len(batch) < BATCH and not waiting.empty():
                batch.append(waiting.get_nowait())
            texts = [text for text, _ in batch]
            vectors = await loop.run_in_executor(
                pool, lambda texts=texts: model.encode(texts, batch_size=BATCH, show_progress_bar=False)
            )
            for (_, answer), vector in zip(batch, vectors, strict=True):
                if not answer.done():
                    answer.set_result(vector)

    async def embed(text: str) -> NDArray[np.float32]:
        answer: asyncio.Future[NDArray[np.float32]] = loop.create_future()
        waiting.put_nowait((text, answer))
        return await answer

    workers = [asyncio.create_task(work()) for _ in range(THREADS)]
    yield embed
    for worker in workers:
        worker.cancel()
    pool.shutdown()


def _reference(store: Path):  # noqa: ANN202 - sentence_transformers is not imported for the others
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    spec = catalog.load([bundled("catalog")]).models[MODEL]
    return SentenceTransformer(str(Sources(store, False, None, None).locate(spec)), device="cpu")


KINDS = {"serai": serai, "pooled": pooled, "padded": padded}


async def serve(kind: str, store: Path) -> None:
    async with KINDS[kind](store) as embed:

        async def handler(request: web.Request) -> web.Response:
            return web.Response(body=(await embed(await request.text())).tobytes())

        app = web.Application()
        app.router.add_post("/embed", handler)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until our starter closes it
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--store", type=Path, required=True)
    chosen = parser.parse_args()
    asyncio.run(serve(chosen.kind, chosen.store))


if __name__ == "__main__":
    main()
