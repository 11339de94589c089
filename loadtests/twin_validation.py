"""How far the twin is from the real engine on this machine: errors, noise, and how it ranks configurations.

A stretch of the Azure conversation and code traces, mapped to two encoders and a reranker on the CPU, is
replayed once, with room for two of them, to measure the models. The next stretch is replayed twice, so that
the machine's own noise is known, and simulated. Its first part is replayed under each of `--configurations`
of slots, memory, pins, eviction, batch size, window and speed, and simulated under each, for how they rank;
and all at once, for how much is served at most. Real time: 6.5 times `--seconds` and a minute and a half.
`python -m loadtests.twin_validation`; exits with 1 when a goal is missed. On a machine that others use the
noise says how little to make of that.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import numpy as np

from engine import catalog as catalogs
from engine.config import Settings
from loadtests.starters import BGE, weights_bytes
from loadtests.tables import table, verdict
from replay.configurations import around, tight_bytes
from replay.formats.reading import read
from replay.peaks import when
from replay.plan import Basis
from replay.realrun import Bench, one_of_each, validate
from replay.trace import Trace, merged
from replay.twin.recorded import measured
from replay.validation import ALL, Validation
from tests.acceptance.asking import MINILM, RERANKER
from tests.weights import CATALOG

DATA = Path(__file__).parents[1] / "tests" / "data"
STORE = os.environ.get("SERAI_TEST_STORE", "~/.cache/serai-test-store")
MODELS = (MINILM, BGE, RERANKER)
MIB = 2**20

LONGEST = 120
"""Tokens of a text: the traces' own are far too long for this machine."""


def settings() -> Settings:
    """Two slots, and room for all of the models."""
    weights = weights_bytes()
    memory = 3 * sum(weights[model] for model in MODELS) + 1000 * MIB
    told = {"devices": "cpu", "slots": 2, "memory": memory, "store": STORE, "catalog_watch": False}
    return Settings.model_validate(told)


def azure(seconds: float, rate: float) -> Trace:
    """So long of the hour's requests as short texts, `rate` a second on average, where most are for the
    reranker, whose traffic comes in bursts. One in three of the others is for the second encoder."""
    code = read(DATA / "azure_llm_2023_code.csv.gz", model=RERANKER)
    conv = read(DATA / "azure_llm_2023_conv.csv.gz", model=MINILM)
    third = np.arange(len(conv)) % 3 == 2
    services = [code, conv.take(~third), conv.take(third).renamed({MINILM: BGE})]
    both = merged(services, "azure").sized(0.02, 0.02)
    short = replace(both, input_size=np.minimum(both.input_size, LONGEST), output_size=both.output_size * 0)
    span = seconds * rate / both.rate
    begin = when(both.arrived[both.model == both.models.index(RERANKER)], span)
    first = int(np.searchsorted(both.arrived, begin))
    found = short.take(np.arange(first, first + round(seconds * rate)))
    return replace(found, arrived=found.arrived * seconds / found.span)


async def compared(seconds: float, rate: float, configured: int) -> tuple[Validation, float]:
    bench = Bench(settings(), catalogs.load([CATALOG]))
    sent = azure(2 * seconds, rate)
    await bench.run(one_of_each(sent), bench.settings)
    # Where models take turns there are loads to learn from, too.
    weights = [weights_bytes()[model] for model in MODELS]
    tight = bench.settings.model_copy(update={"memory": tight_bytes(weights, bench.settings.headroom)})
    half = float(sent.arrived[len(sent) // 2])
    known = measured((await bench.run(sent.between(0, half), tight)).recording)
    print("; ".join((*known.measured, *known.assumed)), flush=True)
    sent = sent.between(half, 2 * seconds).only([*known.units])
    basis = Basis(known, sent, sent, 0, Path())
    choices = around(basis.server, basis.traffic)[:configured]
    return await validate(basis, bench, sent.span + 1, choices, lambda said: print(said, flush=True))


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--rate", type=float, default=5.0)
    arguments.add_argument("--configurations", type=int, default=20, help="at most so many")
    given = arguments.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return show(*anyio.run(compared, given.seconds, given.rate, given.configurations))


def show(found: Validation, lag: float) -> int:
    shown = [
        (
            row.name,
            f"{1000 * row.real:.1f}",
            f"{1000 * row.twin:.1f}",
            "{}/{}".format(*row.loads),
            f"{1000 * row.lag:.1f}",
        )
        for row in found.tried
    ]
    print(table(["configuration", "real p95 ms", "twin p95 ms", "loads", "send lag p99 ms"], shown))
    print(f"Kendall's tau over {len(found.tried)} configurations: {found.tau:.2f}")
    print(f"Most that is served of a burst: {found.capacity_error:+.0%}")
    print(f"Send lag p99: {1000 * lag:.1f} ms")
    print(_errors(found))
    return verdict(found.missed)


def _errors(found: Validation) -> str:
    """Real and in the twin, by model, and two real runs for the noise."""
    heads = ["as it is", "requests", "p50", "p95", "p99", "throughput", "loads", "peak MiB"]
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
