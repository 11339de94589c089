"""What recording costs: microseconds of the event loop a request, and share of the throughput.

One engine of simulated models that take no time, so that passing requests on is all that there is; the same
requests with recording off, on, and with a named recording running, in turns. CPU time is counted, of the
loop's own thread and of the whole process: clocks would tell of whatever else the machine does. Of each kind
the least disturbed turn counts. The share is what the process spends more, over what it spends on one short
text to MiniLM. `python -m loadtests.recording --store DIR`; exits with 1 when an objective is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from engine import catalog as entries
from engine.actors.state_store import open_database
from engine.adapters import simulated
from engine.config import Settings
from engine.devices.simulated import Simulated
from engine.engine import Engine
from engine.offload import Inline
from engine.parts import Parts
from engine.resources import bundled
from engine.running import open_engine
from loadtests.starters import SENTENCE
from loadtests.tables import table, verdict
from tests.acceptance.asking import MINILM
from tests.simulation import catalog, model, request

MODELS = catalog(
    *[model(name, options={"seconds_per_batch": 0.0, "seconds_per_cost": 0.0}) for name in "abc"]
)
CLIENTS, TEXTS = 64, 400
GOAL_MICROSECONDS, GOAL_SHARE = 30.0, 0.02
KINDS = ("off", "on", "named")


@dataclass(frozen=True, slots=True)
class Turn:
    """CPU microseconds a request."""

    loop: float
    process: float


@asynccontextmanager
async def opened(folder: Path, kind: str) -> AsyncIterator[Engine]:
    parts = Parts(
        devices=(Simulated("simulated:a", slots=2, memory=4096 * 2**20),),
        locate=lambda spec: Path("/"),
        family=lambda name: simulated.FAMILY,
        opening=Inline(),
        preparing=Inline(),
        traffic=None if kind == "off" else open_database(folder / f"{kind}.db", "normal"),
    )
    settings = Settings.model_validate({"devices": "simulated:a", "headroom": 0.0})
    async with open_engine(settings, MODELS, parts) as engine:
        if kind == "named":
            await engine.recordings.start(f"r{time.monotonic_ns()}")
        yield engine


async def turn(engine: Engine, count: int) -> Turn:
    numbers = iter(range(count))

    async def client() -> None:
        for number in numbers:
            await engine.submit(request("abc"[number % 3], "some words to embed", id=f"q{number}"))

    loop, process = time.thread_time(), time.process_time()
    async with anyio.create_task_group() as tasks:
        for _ in range(CLIENTS):
            tasks.start_soon(client)
    await anyio.sleep(0.6)  # what is not written yet is
    return Turn((time.thread_time() - loop) / count * 1e6, (time.process_time() - process) / count * 1e6)


async def short_text(store: Path) -> float:
    """CPU microseconds that one short text to MiniLM takes, all of it."""
    with tempfile.TemporaryDirectory(prefix="serai-") as folder:
        settings = Settings(
            devices="cpu", slots=1, memory=2**30, store=store, state_dir=Path(folder), recording=False
        )
        async with open_engine(settings, entries.load([bundled("catalog")])) as engine:
            for number in range(2):  # the first is the load
                began = time.process_time()
                async with anyio.create_task_group() as tasks:
                    for each in range(TEXTS):
                        tasks.start_soon(
                            engine.submit, request(MINILM, SENTENCE.format(each), id=f"t{number}-{each}")
                        )
                used = time.process_time() - began
    return used / TEXTS * 1e6


async def measure(rounds: int, count: int) -> dict[str, list[Turn]]:
    turns: dict[str, list[Turn]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="serai-") as folder:
        for number in range(rounds + 1):
            for kind in KINDS:
                async with opened(Path(folder), kind) as engine:
                    await turn(engine, 300)  # everything is loaded and imported
                    seen = await turn(engine, count)
                if number:  # the first round warms the machine
                    turns[kind].append(seen)
    return turns


def report(turns: dict[str, list[Turn]], text: float) -> int:
    loop = {kind: min(turn.loop for turn in seen) for kind, seen in turns.items()}
    process = {kind: min(turn.process for turn in seen) for kind, seen in turns.items()}
    rows, missed = [], []
    for kind in KINDS:
        more, all_more = loop[kind] - loop["off"], process[kind] - process["off"]
        share = all_more / text
        rows.append([kind, f"{loop[kind]:.0f}", f"{more:+.1f}", f"{process[kind]:.0f}", f"{share:+.2%}"])
        if more > GOAL_MICROSECONDS:
            missed.append(f"{kind}: {more:.1f} us of the event loop a request, not {GOAL_MICROSECONDS:g}")
        if share > GOAL_SHARE:
            missed.append(f"{kind}: {share:.1%} of a short text's work, not {GOAL_SHARE:.0%}")
    print(table(["recording", "loop us", "more", "process us", "of a short text"], rows))
    print(f"A short text takes {text:.0f} us of CPU.")
    return verdict(missed)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of few requests")
    parser.add_argument("--store", type=Path, default=Path("~/.cache/serai").expanduser())
    chosen = parser.parse_args(arguments)
    rounds, requests = (1, 300) if chosen.quick else (5, 4000)
    turns = anyio.run(measure, rounds, requests)
    return report(turns, anyio.run(short_text, chosen.store))


if __name__ == "__main__":
    sys.exit(main())
