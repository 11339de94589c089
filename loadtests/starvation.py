"""Whether anything starves beside saturating traffic: how long the worst of the others waits.

One slot, in virtual time on the cores that serve; 64 callers, half as many again as fill a batch, who
each always have a 48-token job of one model waiting. Beside them a job of 8,000 tokens of the same model
every 5 s; and, in a run of their own with one such job in it, two more models that trickle. Waits are told
in batch times of the saturating model (the median it runs), and beside what the same traffic meets on an
idle device. Objective: each long job starts within 3, and the trickling models' p99 is within 3. A few
seconds. `python -m loadtests.starvation`; exits with 1 when one is missed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from loadtests.cards import Unchecked, card
from loadtests.tables import percentile, table, verdict

CALLERS, SHORT, LONG, TRICKLE = 64, 48, 8_000, 48
RARE = ("rare", "rarer")
GOAL = 3.0
"""Batch times."""


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds waited; `batch` is one batch of the saturating model."""

    what: str
    waits: tuple[float, ...]
    batch: float

    @property
    def judged(self) -> float:
        """In batch times: the worst of a few, the p99 of many."""
        return percentile(self.waits, 0.99) / self.batch


def busy(seconds: float, saturated: bool) -> Unchecked:
    twin = Unchecked(*card(units=("busy", *RARE)), memory=1_000_000)
    for unit in twin.sims:
        twin.ask("load", unit)
    if saturated:
        twin.clients("busy", CALLERS, until=seconds, cost=SHORT)
    return twin


def long_jobs(twin: Unchecked, seconds: float, apart: float) -> list[str]:
    jobs, when = list[str](), 2.0
    while when < seconds:
        twin.at(when, lambda: jobs.append(twin.submit("busy", LONG)))
        when += apart
    return jobs


def trickle(twin: Unchecked, unit: str, seconds: float) -> list[str]:
    """Poisson arrivals, two a second."""
    jobs, rng, when = list[str](), random.Random(unit), 2.0
    while (when := when + rng.expovariate(2.0)) < seconds:
        twin.at(when, lambda: jobs.append(twin.submit(unit, TRICKLE)))
    return jobs


def measure(seconds: float) -> list[Row]:
    rows, batch = list[Row](), 0.0
    for beside in ("saturated", "alone"):
        twin = busy(seconds, beside == "saturated")
        jobs = long_jobs(twin, seconds, apart=5.0)
        twin.run(until=seconds + 20)
        batch = batch or statistics.median(ran.seconds for ran in twin.batches("busy") if ran.cost < LONG)
        starts = tuple(twin.started[job] - twin.jobs[job].arrived for job in jobs)
        rows.append(Row(f"{beside}: an 8,000-token job, to its start", starts, batch))
        twin = busy(seconds, beside == "saturated")
        long_jobs(twin, seconds, apart=seconds)
        trickling = {unit: trickle(twin, unit, seconds) for unit in RARE}
        twin.run(until=seconds + 20)
        for unit, sent in trickling.items():
            took = tuple(twin.latency(job) for job in sent)
            rows.append(Row(f"{beside}: {unit} model, 2 a second, to the answer", took, batch))
    return rows


def show(rows: Sequence[Row]) -> str:
    lines = [
        [
            row.what,
            f"{1e3 * statistics.median(row.waits):.0f}",
            f"{1e3 * max(row.waits):.0f}",
            f"{row.judged:.2f}" + (f" (goal {GOAL:.0f})" if row.what.startswith("saturated") else ""),
        ]
        for row in rows
    ]
    batch = f"p99 in batches of {1e3 * rows[0].batch:.0f} ms"
    return table(["", "p50 ms", "worst ms", batch], lines)


def missed(rows: Sequence[Row]) -> list[str]:
    return [
        f"{row.what}: {row.judged:.2f} batch times (goal {GOAL:.0f})"
        for row in rows
        if row.what.startswith("saturated") and row.judged > GOAL
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short while, to see that it runs")
    chosen = parser.parse_args(arguments)
    rows = measure(10.0 if chosen.quick else 300.0)
    print(show(rows))
    return verdict(missed(rows))


if __name__ == "__main__":
    sys.exit(main())
