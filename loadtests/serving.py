"""End to end over HTTP: texts a second and latency at several concurrencies, against two baselines.

The three servers of `loadtests/servers.py` run side by side, idle but for the one whose turn it is; turns
alternate, so that a busy machine slows all alike. Closed loop: each of n clients sends its next text when
the last is answered. `python -m loadtests.serving --store DIR`; exits with 1 when an objective is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import numpy as np

from loadtests.servers import KINDS

MEDIAN, SPREAD, LONGEST = 30, 0.8, 200
CONCURRENCIES = (1, 16, 64)
GOALS = {"pooled": 1.4, "padded": 3.0}
"""Serai's texts a second over a baseline's, at 16 and at 64 clients."""

WORDS = ("claim", "water", "cellar", "damage", "policy", "invoice", "carrier", "window", "repair", "amount")


@dataclass(frozen=True, slots=True)
class Turn:
    texts_per_second: float
    p50: float
    p99: float


def texts(count: int, seed: int) -> list[str]:
    """Unique texts of lognormal lengths in words."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(np.exp(rng.normal(np.log(MEDIAN), SPREAD, count)), 3, LONGEST).astype(int)
    return [f"{n} " + " ".join(rng.choice(WORDS, length)) for n, length in enumerate(lengths)]


@contextmanager
def server(kind: str, store: Path) -> Iterator[str]:
    """A server of this kind in a process of its own; its URL."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "MALLOC_ARENA_MAX": "2"}
    command = [sys.executable, "-m", "loadtests.servers", kind, "--store", str(store)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdin and process.stdout
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/embed"
    finally:
        process.stdin.close()
        process.wait(30)


async def turn(url: str, clients: int, seconds: float, seed: int) -> Turn:
    source, latencies = iter(texts(20_000, seed)), list[float]()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=clients)) as http:
        began = time.perf_counter()

        async def client() -> None:
            while time.perf_counter() - began < seconds:
                sent = time.perf_counter()
                async with http.post(url, data=next(source)) as answer:
                    body = await answer.read()
                    assert answer.status == 200 and len(body) == 384 * 4, (answer.status, body[:200])
                latencies.append(time.perf_counter() - sent)

        await asyncio.gather(*(client() for _ in range(clients)))
        took = time.perf_counter() - began
    ranked = sorted(latencies)
    return Turn(len(ranked) / took, statistics.median(ranked), ranked[int(0.99 * (len(ranked) - 1))])


async def measure(urls: dict[str, str], rounds: int, seconds: float) -> dict[tuple[str, int], list[Turn]]:
    turns: dict[tuple[str, int], list[Turn]] = defaultdict(list)
    for url in urls.values():
        await turn(url, 8, 1.0, seed=999)  # warm
    for clients in CONCURRENCIES:
        for number in range(rounds):
            for kind, url in urls.items():
                turns[kind, clients].append(await turn(url, clients, seconds, seed=number))
    return turns


def report(turns: dict[tuple[str, int], list[Turn]]) -> bool:
    """Print the table; whether every goal was met."""
    good = True
    print(f"{'clients':>7} {'server':8} {'texts/s':>8} {'p50 ms':>8} {'p99 ms':>8}  serai / it")
    for clients in CONCURRENCIES:
        ours = turns["serai", clients]
        for kind in KINDS:
            theirs = turns[kind, clients]
            ratio = statistics.median(
                a.texts_per_second / b.texts_per_second for a, b in zip(ours, theirs, strict=True)
            )
            goal = GOALS.get(kind) if clients > 1 else None
            missed = goal is not None and ratio < goal
            good = good and not missed
            verdict = "" if goal is None else f"(goal {goal}{', missed' if missed else ''})"
            print(
                f"{clients:7} {kind:8} {_median(theirs, 'texts_per_second'):8.1f}"
                f" {1000 * _median(theirs, 'p50'):8.1f} {1000 * _median(theirs, 'p99'):8.1f}"
                f"  {ratio:.2f} {verdict}"
            )
    return good


def _median(turns: Sequence[Turn], field: str) -> float:
    return statistics.median(getattr(turn, field) for turn in turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=Path("~/.cache/serai").expanduser())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    chosen = parser.parse_args()
    with (
        server("serai", chosen.store) as a,
        server("pooled", chosen.store) as b,
        server("padded", chosen.store) as c,
    ):
        urls = {"serai": a, "pooled": b, "padded": c}
        turns = asyncio.run(measure(urls, chosen.rounds, chosen.seconds))
    sys.exit(not report(turns))


if __name__ == "__main__":
    main()
