"""How far the twin is from the real engine on this machine: errors, noise, and how it ranks configurations.

A stretch of the Azure conversation and code traces, mapped to an encoder and a reranker on the CPU, is
replayed once to measure the models. The next stretch is replayed twice, so that the machine's own noise is
known, and simulated. Its first part is replayed under each of `--configurations` of slots, memory and batch
size, and simulated under each, for how they rank. Real time: about 6.5 times `--seconds` and half a minute.
`python -m loadtests.twin_validation`; exits with 1 when a goal is missed. On a machine that others use the
noise says how little to make of that.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import numpy as np

from engine import __version__
from engine.catalog import Catalog
from engine.config import Settings
from engine.units import UnitFacts
from loadtests.starters import weights_bytes
from loadtests.tables import table, verdict
from replay.formats.reading import read
from replay.peaks import when
from replay.plan import curves_version
from replay.realrun import in_the_twin, one_of_each, real_run
from replay.trace import Trace, merged
from replay.twin.recorded import measured
from replay.twin.server import Server
from replay.validation import ALL, Measured, Validation, errors, kendall
from tests.acceptance.asking import MINILM, RERANKER
from tests.weights import CATALOG

DATA = Path(__file__).parents[1] / "tests" / "data"
MIB = 2**20

PART = 0.4
"""Of the stretch, for each configuration: ranks need fewer requests than tails do."""


@dataclass(frozen=True, slots=True)
class Configuration:
    name: str
    slots: int
    memory: int
    max_batch_cost: int | None = None

    def settings(self) -> Settings:
        return Settings.model_validate(
            {
                "devices": "cpu",
                "slots": self.slots,
                "memory": self.memory,
                "max_batch_cost": self.max_batch_cost,
                "store": STORE,
                "catalog_watch": False,
            }
        )

    def server(self, server: Server) -> Server:
        """The measured server, as this configuration would have it."""
        (card,) = server.cards
        units = dict(server.units)
        if self.max_batch_cost is not None:
            units = {name: replace(u, facts=self._bounded(u.facts)) for name, u in units.items()}
        cards = (replace(card, slots=self.slots, memory_bytes=self.memory),)
        return replace(server, cards=cards, units=units)

    def _bounded(self, facts: UnitFacts) -> UnitFacts:
        assert self.max_batch_cost is not None
        return replace(facts, max_batch_cost=min(facts.max_batch_cost, self.max_batch_cost))


STORE = os.environ.get("SERAI_TEST_STORE", "~/.cache/serai-test-store")


def configurations() -> list[Configuration]:
    weights = weights_bytes()
    both, one = weights[MINILM] + weights[RERANKER], max(weights[MINILM], weights[RERANKER])
    roomy, tight = 3 * both + 1000 * MIB, int((both + one) / 2 / 0.8) + 30 * MIB
    return [
        Configuration("two slots", 2, roomy),
        Configuration("one slot", 1, roomy),
        Configuration("two slots, room for one model", 2, tight),
        Configuration("one slot, room for one model", 1, tight),
        Configuration("two slots, batches of 128", 2, roomy, 128),
        Configuration("one slot, batches of 128", 1, roomy, 128),
        Configuration("two slots, batches of 32", 2, roomy, 32),
        Configuration("one slot, batches of 32", 1, roomy, 32),
    ]


def azure(seconds: float, rate: float) -> Trace:
    """So long of the hour's requests as short texts, `rate` a second on average, where most are for the
    reranker, whose traffic comes in bursts."""
    code = read(DATA / "azure_llm_2023_code.csv.gz", model=RERANKER)
    conv = read(DATA / "azure_llm_2023_conv.csv.gz", model=MINILM)
    both = merged([code, conv], "azure").sized(0.02)
    short = replace(both, input_size=np.minimum(both.input_size, 120), output_size=both.output_size * 0)
    span = seconds * rate / both.rate
    begin = when(both.arrived[both.model == both.models.index(RERANKER)], span)
    first = int(np.searchsorted(both.arrived, begin))
    found = short.take(np.arange(first, first + round(seconds * rate)))
    return replace(found, arrived=found.arrived * seconds / found.span)


@dataclass(frozen=True, slots=True)
class Row:
    """p95 and p99 lag in seconds; loads real and in the twin."""

    name: str
    real: float
    twin: float
    loads: tuple[int, int]
    lag: float


async def compared(seconds: float, rate: float, configured: int) -> tuple[Validation, list[Row]]:
    from engine import catalog as catalogs

    known = catalogs.load([CATALOG])
    tried = configurations()[:configured]
    sent = azure(2 * seconds, rate)
    await real_run(tried[0].settings(), known, one_of_each(sent))
    # With the models there, their sizes are in the recording's first line.
    both = tried[0].settings().model_copy(update={"pins": (MINILM, RERANKER)})
    _, recording, _ = await real_run(both, known, sent.between(0, seconds))
    server = replace(measured(recording), pins=())
    print("; ".join(server.assumed) or "everything was measured")
    sent = sent.between(seconds, 2 * seconds)
    first, _, _ = await real_run(tried[0].settings(), known, sent)
    again, _, _ = await real_run(tried[0].settings(), known, sent)
    rows = [await _row(chosen, known, server, sent.between(0, PART * seconds)) for chosen in tried]
    burst = replace(sent, arrived=np.linspace(0, 0.01, len(sent)))
    flooded, _, _ = await real_run(both, known, burst)
    there = replace(tried[0].server(server), pins=both.pins)
    found = Validation(
        at=time.time(),
        curves=curves_version(server),
        engine=__version__,
        devices=("cpu",),
        trace=sent.name,
        errors=tuple(errors(first, in_the_twin(tried[0].server(server), sent))),
        noise=tuple(errors(first, again)),
        capacity_error=served(in_the_twin(there, burst)) / served(flooded) - 1,
        tau=kendall([row.real for row in rows], [row.twin for row in rows]),
        configurations=len(rows),
    )
    return found, rows


async def _row(chosen: Configuration, known: Catalog, server: Server, sent: Trace) -> Row:
    real, _, lag = await real_run(chosen.settings(), known, sent)
    twin = in_the_twin(chosen.server(server), sent)
    loads = (sum(real.swaps.values()), sum(twin.swaps.values()))
    return Row(chosen.name, p95(real), p95(twin), loads, lag)


def p95(run: Measured) -> float:
    latency = run.answers.latency
    return float(np.quantile(latency[np.isfinite(latency)], 0.95))


def served(run: Measured) -> float:
    """Answers a second of a burst."""
    latency = run.answers.latency[np.isfinite(run.answers.latency)]
    return len(latency) / float(latency.max())


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=20.0)
    arguments.add_argument("--rate", type=float, default=3.0)
    arguments.add_argument("--configurations", type=int, choices=range(1, 9), default=8, metavar="1..8")
    given = arguments.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    found, rows = anyio.run(compared, given.seconds, given.rate, given.configurations)
    shown = [
        (
            row.name,
            f"{1000 * row.real:.1f}",
            f"{1000 * row.twin:.1f}",
            "{}/{}".format(*row.loads),
            f"{1000 * row.lag:.1f}",
        )
        for row in rows
    ]
    print(table(["configuration", "real p95 ms", "twin p95 ms", "loads", "send lag p99 ms"], shown))
    print(f"Kendall's tau over {found.configurations} configurations: {found.tau:.2f}")
    print(f"Most that is served of a burst: {found.capacity_error:+.0%}")
    print(_errors(found))
    return verdict(found.missed)


def _errors(found: Validation) -> str:
    """Real and in the twin for two slots, by model, and two real runs for the noise."""
    heads = ["two slots", "requests", "p50", "p95", "p99", "throughput", "loads", "peak MiB"]
    heads += ["noise p50", "p95", "p99", "throughput"]
    noise = {each.model: each for each in found.noise}
    lines = []
    for each in found.errors:
        other = noise[each.model]
        off = [f"{getattr(each, name):+.0%}" for name in ("p50", "p95", "p99", "throughput")]
        told = [f"{getattr(other, name):+.0%}" for name in ("p50", "p95", "p99", "throughput")]
        peaks = "/".join(f"{size / MIB:.0f}" for size in each.peak_bytes)
        model = each.model if each.model == ALL else each.model.rsplit("/", 1)[-1]
        lines.append([model, str(each.requests), *off, "{}/{}".format(*each.swaps), peaks, *told])
    return table(heads, lines)


if __name__ == "__main__":
    sys.exit(main())
