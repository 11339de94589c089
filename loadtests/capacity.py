"""How long `serai plan capacity` takes to answer: the Azure hour of 2023 over twelve models on one card.

28,185 requests with their own sizes and bursts, spread over the models by Zipf. `tight`: a card that carries
about twice of it. `roomy`: one ten times as fast, which must be asked for ten times as much to fail.
A minute on two cores. `python -m loadtests.capacity`; exits with 1 when the goal is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from loadtests.tables import table, verdict
from loadtests.twin import GIB, MODELS, server
from replay.atonce import at_once
from replay.capacity import Capacity, measure
from replay.formats.reading import read
from replay.trace import merged
from replay.twin.server import Server
from replay.twin.traffic import Traffic
from replay.whatif import Change

DATA = Path(__file__).parents[1] / "tests" / "data"
GOAL = 60.0
"""Seconds for each."""


def azure(on: Server) -> Traffic:
    services = [read(DATA / f"azure_llm_2023_{name}.csv.gz") for name in ("code", "conv")]
    both = merged(services, "azure")
    shares = 1 / np.arange(1, MODELS + 1)
    which = np.random.default_rng(0).choice(MODELS, len(both), p=shares / shares.sum())
    names = tuple(f"m{n:02}" for n in range(MODELS))
    return Traffic.of(replace(both, models=names, model=which.astype(np.int32)), on)


def measured(on: Server, sent: Traffic, workers: int) -> tuple[float, Capacity]:
    began = time.monotonic()
    with at_once(workers) as calls:
        found = measure(on, sent, calls=calls)
    return time.monotonic() - began, found


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    workers = arguments.parse_args().workers
    tight = server(24 * GIB)
    sent = azure(tight)
    rows, missed = [], []
    for name, on in (("tight", tight), ("roomy", Change(speed=10.0).server(tight))):
        seconds, found = measured(on, sent, workers)
        knee, ks = found.carrying_limit, {each.method: each.k for each in found.most}
        told = [f"{ks[method]:.2f}" for method in sorted(ks)]
        rows.append((name, f"{seconds:.1f}", "none" if knee is None else f"{knee:.1f}", *told))
        if seconds > GOAL:
            missed.append(f"{name} took {seconds:.0f} s, not {GOAL:.0f} s")
    print(table(["card", "seconds", "knee /s", "k* dup", "k* shift", "k* warp"], rows))
    return verdict(missed)


if __name__ == "__main__":
    sys.exit(main())
