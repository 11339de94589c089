"""Whether the urgent is served first and shares are kept: latencies beside background, device-seconds.

One slot, in virtual time on the cores that serve. Interactive requests that take 30 % of the slot are
measured alone and then beside background work that always waits, of another model and of the same one;
objective: p99 no more than alone and one bounded quantum (an eighth of the interactive target). Then two
models of weights 3 and 1, both saturated; objective: the heavier has 75 % of the device-seconds, within
5 % of that, in every window of 100 batches. A few seconds.
`python -m loadtests.priority`; exits with 1 when an objective is missed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from engine.requests import ServiceClass
from engine.scheduling.rules import QUANTUM_SHARE, SchedulingRules
from loadtests.cards import Unchecked, card
from loadtests.tables import percentile, table, verdict
from tests.engine.twin import Ran, Sim

COST, SHARE_OF_SLOT, CALLERS = 48, 0.3, 256
QUANTUM = SchedulingRules().targets[ServiceClass.INTERACTIVE] * QUANTUM_SHARE
WEIGHT, WINDOW, WITHIN = 3.0, 100, 0.05
FAIR = WEIGHT / (WEIGHT + 1)


@dataclass(frozen=True, slots=True)
class Row:
    """Interactive latencies in seconds, and the share of the slot that the background got."""

    beside: str
    latencies: tuple[float, ...]
    background: float

    @property
    def p99(self) -> float:
        return percentile(self.latencies, 0.99)


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the heavier, of all device-seconds, and in the windows where it had least and most."""

    share: float
    least: float
    most: float

    @property
    def kept(self) -> bool:
        return self.least >= FAIR * (1 - WITHIN) and self.most <= FAIR * (1 + WITHIN)


def interactive(beside: str, background: str | None, seconds: float) -> Row:
    twin = Unchecked(*card(units=("urgent", "other")), memory=1_000_000)
    for unit in twin.sims:
        twin.ask("load", unit)
    rng, jobs, when = random.Random(5), list[str](), 3.0
    rate = SHARE_OF_SLOT / twin.sims["urgent"].seconds(COST)
    if background is not None:
        twin.clients(background, CALLERS, until=seconds, cost=COST, service_class=ServiceClass.BACKGROUND)
    while (when := when + rng.expovariate(rate)) < seconds:
        twin.at(when, lambda: jobs.append(twin.submit("urgent", COST, ServiceClass.INTERACTIVE)))
    twin.run(until=seconds + 5)
    urgent = set(jobs)
    spent = sum(
        ran.seconds * (1 - len(urgent & {*ran.jobs}) / len(ran.jobs))  # all jobs cost the same
        for ran in twin.ran
        if 3 <= ran.began < seconds
    )
    latencies = tuple(twin.latency(job) for job in jobs[len(jobs) // 10 :])
    return Row(beside, latencies, spent / (seconds - 3))


def shares(seconds: float) -> Shares:
    heavy, light = card(units=("heavy", "light"))
    heavy = Sim(**{**vars(heavy), "facts": {"weight": WEIGHT}})
    twin = Unchecked(heavy, light, memory=1_000_000)
    for unit in twin.sims:
        twin.ask("load", unit)
        twin.clients(unit, CALLERS, until=seconds, cost=COST)
    twin.run(until=seconds)
    ran = [r for r in twin.ran if r.began >= 2.0]
    return Shares(_share(ran), *_extremes(ran))


def _share(ran: Sequence[Ran]) -> float:
    spent = dict.fromkeys(("heavy", "light"), 0.0)
    for one in ran:
        spent[one.unit] += one.seconds
    return spent["heavy"] / sum(spent.values())


def _extremes(ran: Sequence[Ran]) -> tuple[float, float]:
    found = [_share(ran[n : n + WINDOW]) for n in range(max(1, len(ran) - WINDOW))]
    return min(found), max(found)


def show(rows: Sequence[Row], kept: Shares) -> str:
    alone = rows[0].p99
    lines = [
        [
            row.beside,
            f"{1e3 * statistics.median(row.latencies):.1f}",
            f"{1e3 * row.p99:.1f}",
            f"{1e3 * (row.p99 - alone):+.1f}"
            + (f" (goal +{1e3 * QUANTUM:.0f})" if row is not rows[0] else ""),
            f"{row.background:.0%}",
        ]
        for row in rows
    ]
    heads = ["interactive at 30 % of one slot", "p50 ms", "p99 ms", "over alone, ms", "background's share"]
    weights = f"weights 3:1, both saturated: the heavier has {kept.share:.1%} of the device-seconds; "
    worst = f"windows of {WINDOW} batches {kept.least:.1%} to {kept.most:.1%}"
    goal = f"(goal {FAIR:.0%} within {WITHIN:.0%} of it)"
    return "\n".join([table(heads, lines), f"{weights}{worst} {goal}"])


def missed(rows: Sequence[Row], kept: Shares) -> list[str]:
    told = [
        f"{row.beside}: p99 is {1e3 * (row.p99 - rows[0].p99):.1f} ms over alone (goal {1e3 * QUANTUM:.0f})"
        for row in rows[1:]
        if row.p99 - rows[0].p99 > QUANTUM
    ]
    if not kept.kept:
        told.append(
            f"weights 3:1: a window of {WINDOW} batches had {kept.least:.2f}, another {kept.most:.2f}"
        )
    return told


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short while, to see that it runs")
    chosen = parser.parse_args(arguments)
    seconds = 15.0 if chosen.quick else 120.0
    rows = [
        interactive("alone", None, seconds),
        interactive("beside another model's background", "other", seconds),
        interactive("beside its own model's background", "urgent", seconds),
    ]
    kept = shares(seconds)
    print(show(rows, kept))
    return verdict(missed(rows, kept))


if __name__ == "__main__":
    sys.exit(main())
