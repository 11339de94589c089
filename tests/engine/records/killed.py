"""A server with steady traffic that waits to be killed: `python -m tests.engine.records.killed DIR`."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from tests.engine.records.conftest import recorded_engine
from tests.simulation import request


async def main() -> None:
    async with recorded_engine(Path(sys.argv[1])) as engine:
        await engine.recordings.start("killed")
        for number in range(100_000):
            await engine.submit(request("a", "some words", id=f"q{number}"))
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            await anyio.sleep(0.02)


anyio.run(main)
