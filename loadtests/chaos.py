"""What is done to a server under load, what its clients see, and what is lost: a row for each.

Simulated models and the real documents family, `--callers` that ask one encoding after another beside it all.
`python -m loadtests.chaos`; exits with 1 when others than who was hit saw a failure, or a line is lost.
The scenarios are those of `tests/acceptance/test_chaos.py`, which runs them in small.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

from loadtests.tables import table, verdict
from tests.acceptance import chaos
from tests.acceptance.chaos import NO_ANSWER, under_load
from tests.acceptance.serving import Server
from tests.acceptance.simulated import simulated

Row = tuple[str, str, Counter[str]]
"""What was done, what those saw who were hit, and how all the others were answered."""


async def beside(server: Server, callers: int, each: int) -> list[Row]:
    """What one server survives."""
    rows = list[Row]()
    async with under_load(server, callers) as (session, load):
        for _ in range(3):
            hit, after = await chaos.kill_a_document_child(server, session)
            rows.append(("document child killed", f"{hit}; the next one {after}", load.seen.copy()))
        hit, before = await chaos.slow_documents(session, each)
        said = f"an interactive one of another: {hit}, after {before} of them"
        rows.append((f"{each} slow documents of one caller", said, load.seen.copy()))
        for name, seen in (await chaos.fail_loads(session, each)).items():
            rows.append((f"{each} at once: {name}", _said(seen), load.seen.copy()))
        await chaos.cut_streams(server, session, each)
        await chaos.cut_answers(server, each)
        rows.append((f"{each} clients cut mid-stream, and mid-answer", "nothing is held", load.seen.copy()))
    return rows


async def without_disk(server: Server, disk: Path, callers: int, lines: int) -> Row:
    server.http.post("/v1/admin/recordings/start", json={"name": "full"}).raise_for_status()
    async with under_load(server, callers) as (_, load):
        batch = await asyncio.to_thread(chaos.batch_of, server, lines)
        with chaos.filled(disk):
            told = await asyncio.to_thread(chaos.acts_without_disk, server)
            await asyncio.sleep(5)
        done = await asyncio.to_thread(chaos.ended, server, batch)
    lost = f"{lines - len(set(done))} of {lines} lines lost"
    return "disk full for 5 s", f"{told}; {lost}", load.seen


async def stopped(server: Server, callers: int) -> Row:
    async with under_load(server, callers) as (_, load):
        status = await chaos.end(server)
    return "SIGTERM", f"exit status {status}, {load.without_retry} without Retry-After", load.seen


def measure(callers: int, each: int, lines: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as place:
        with simulated(Path(place) / "first") as server:
            rows = asyncio.run(beside(server, callers, each))
            rows.append(asyncio.run(stopped(server, callers)))
        try:
            with chaos.small_disk(Path(place) / "disk", 32) as disk:
                with simulated(Path(place) / "second", state_dir=disk) as server:
                    rows.append(asyncio.run(without_disk(server, disk, callers, lines)))
        except PermissionError as error:
            print(f"the disk was not filled: {error}")
    return rows


def _said(seen: Counter[str]) -> str:
    return ", ".join(f"{count:,} {code}" for code, count in sorted(seen.items()))


def missed(rows: list[Row]) -> list[str]:
    told = []
    for what, seen, others in rows:
        right = {"200", "QUEUE_FULL", NO_ANSWER} if what == "SIGTERM" else {"200"}
        told += [f"{what}: others saw {code}" for code in others.keys() - right]
        if "lines lost" in seen and " 0 of" not in seen:
            told.append(f"{what}: {seen}")
    return told


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="few of everything, to see that it runs")
    chosen = parser.parse_args(arguments)
    rows = measure(8, 4, 500) if chosen.quick else measure(chosen.callers, 50, 5000)
    print(table(["done", "who was hit saw", "all others"], [[a, b, _said(c)] for a, b, c in rows]))
    return verdict(missed(rows))


if __name__ == "__main__":
    sys.exit(main())
