"""How fast the twin is: requests simulated a second, and the seconds that a peak hour takes.

Twelve models on one card. `peak hour`: 8 requests a second in bursts, most of them alone in their batch, so
that nearly each pays for a whole round of the cores; everything fits. `turns`: the same with room for half of
the models. `packed`: 2,000 a second, in batches of dozens, which is what the cores were made for.
Half a minute. `python -m loadtests.twin`; exits with 1 when an objective is missed.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time

import numpy as np

from engine.memory.footprint import Footprint
from engine.units import UnitFacts
from loadtests.tables import table, verdict
from replay.trace import Trace
from replay.twin.results import Results
from replay.twin.server import Card, Server, Unit
from replay.twin.timing import Declared, Loads
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate

GIB = 2**30
MODELS = 12
HOUR_GOAL = 5.0
"""Seconds for the peak hour."""
RATE_GOAL = 20_000.0
"""Requests a second, at least in one of the three."""


def server(memory: int) -> Server:
    units = {
        f"m{n:02}": Unit(
            facts=UnitFacts(f"m{n:02}", f"m{n:02}", ("cuda",), max_batch_cost=8192),
            footprint=Footprint((300 + 50 * n) * 2**20, 0, 2048.0),
            timings={"cuda": Declared(0.004 + 0.0005 * n, 0.00001 * (1 + n % 3))},
            loads=Loads((0.4 + 0.1 * n,), (0.05,)),
        )
        for n in range(MODELS)
    }
    card = Card("cuda:0", "cuda", 2, memory, context_bytes=GIB // 2)
    return Server((card,), units, resident=tuple(units))


def traffic(count: int, rate: float, seed: int, models: int = MODELS) -> Traffic:
    """Bursts of four on average, Zipf over models, sizes like those of sentences and pages."""
    rng = np.random.default_rng(seed)
    bursts = rng.uniform(0, count / rate, count // 4)
    times = np.sort(np.repeat(bursts, 4) + rng.uniform(0, 0.1, 4 * (count // 4)))
    shares = 1 / np.arange(1, models + 1)
    which = rng.choice(models, len(times), p=shares / shares.sum())
    sizes = np.clip(rng.lognormal(4.5, 1.0, len(times)), 4, 4000).astype(np.int64)
    names = [f"m{n:02}" for n in which]
    trace = Trace.of("made", times, models=names, input_size=sizes)
    return Traffic.of(trace, server(GIB))


def measured(memory: int, sent: Traffic) -> tuple[float, Results]:
    began = time.process_time()
    results = simulate(server(memory), sent)
    return time.process_time() - began, results


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--profile", choices=["peak hour", "turns", "packed"])
    chosen = arguments.parse_args()
    runs = {
        "peak hour": (24 * GIB, traffic(28_800, 8.0, 1)),
        "turns": (6 * GIB, traffic(28_800, 8.0, 1)),
        "packed": (24 * GIB, traffic(100_000, 2000.0, 2)),
    }
    if chosen.profile:
        with cProfile.Profile() as profile:
            measured(*runs[chosen.profile])
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
        return 0
    found = {name: measured(*run) for name, run in runs.items()}
    rows = [
        (
            name,
            f"{len(results):,}",
            f"{results.batches:,}",
            f"{results.swaps():,}",
            f"{seconds:.2f}",
            f"{len(results) / seconds:,.0f}",
            f"{1e6 * seconds / results.batches:.0f}",
        )
        for name, (seconds, results) in found.items()
    ]
    print(table(["traffic", "requests", "batches", "loads", "CPU s", "requests/s", "us a batch"], rows))
    missed = []
    if found["peak hour"][0] > HOUR_GOAL:
        missed.append(f"the peak hour took {found['peak hour'][0]:.1f} s, not {HOUR_GOAL:.0f} s")
    best = max(len(results) / seconds for seconds, results in found.values())
    if best < RATE_GOAL:
        missed.append(f"at most {best:,.0f} requests a second were simulated, not {RATE_GOAL:,.0f}")
    return verdict(missed)


if __name__ == "__main__":
    sys.exit(main())
