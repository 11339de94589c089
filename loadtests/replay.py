"""A real trace replayed on a real server of this machine: do requests go out on time, and what comes back?

A stretch of the Azure trace of 2023: its code service asks MiniLM for embeddings, its conversations the
cross-encoder for scores. At its own sizes that is far too much for a small machine: sizes are scaled until
the offered load is about `SHARE` of what a burst shows the server to serve. Usable capacity is one half to
nine tenths of that, so the load is 0.3 to 0.6 of the knee. The sender is a process of its own.
`python -m loadtests.replay --store DIR`; exits with 1 when the run is void or something was refused.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import anyio

from engine import __version__, catalog
from engine.catalog import Catalog
from engine.config import Settings
from engine.resources import bundled
from loadtests.tables import table, verdict
from replay.formats.reading import read
from replay.replaying.ramping import Climbing, burst
from replay.replaying.run import maker_for, run
from replay.replaying.wanted import Chosen, Wanted, chosen
from replay.report import report as reports
from replay.report.report import About, Report
from replay.trace import Trace, merged
from tests.acceptance.asking import MINILM, RERANKER
from tests.acceptance.serving import serving
from web.replaying.going import steady, target_of, write
from web.replaying.http import Http, connected

DATA = Path(__file__).parents[1] / "tests" / "data"
SHARE = 0.3
NEAR = 1.25
"""Off the share by this factor is near enough."""

FIRST_SCALE, SMALLEST = 0.05, 0.002
TRIES = 4
QUICK = 8.0


def azure() -> Trace:
    services = (("code", MINILM), ("conv", RERANKER))
    return merged(
        [read(DATA / f"azure_llm_2023_{name}.csv.gz", model=model) for name, model in services], "azure"
    )


async def fitted(
    trace: Trace, between: tuple[float, float], server: Http, models: Catalog
) -> tuple[Chosen, Wanted]:
    """Sizes at which the stretch is `SHARE` of what the server can do, as far as sizes bring that about."""
    scale = FIRST_SCALE
    for _ in range(TRIES):
        wanted = Wanted(between=between, input_scale=scale, output_scale=scale)
        picked = chosen(trace, None, wanted)
        maker = await maker_for(picked, server, 0)
        target = target_of(Settings(), models)
        climbing = Climbing(
            server, picked.trace, maker.specs, maker.lines, {}, target, 0, anyio.Event(), lambda log: None
        )
        most = await burst(climbing)
        share = picked.trace.rate / most
        print(f"sizes {scale:.3f}: a burst is served at {most:.0f}/s, {picked.trace.rate:.1f}/s are offered")
        if SHARE / NEAR <= share <= SHARE * NEAR or (share < SHARE and scale >= 1) or scale <= SMALLEST:
            break
        scale = min(1.0, max(SMALLEST, scale * SHARE / share))
    return picked, wanted


async def measure(begin: float, seconds: float, store: Path, base: Path) -> Report:
    models = catalog.load([bundled("catalog")])
    with tempfile.TemporaryDirectory(prefix="serai-") as folder:
        with serving(Path(folder), store=store) as server, steady(apart=True):
            async with connected(server.url, None, models) as target:
                picked, wanted = await fitted(azure(), (begin, begin + seconds), target, models)
                done = await run(picked, target)
    began = datetime.now(UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    said = "azure", "a server on this machine's CPU", began, __version__
    about = About(*said, 0, dict(wanted.settings()), done.notes)
    report = reports.of(done.log, about, target_of(Settings(), models), shares_process=False)
    write(report, base)
    return report


def show(report: Report) -> int:
    rows = [
        [
            row["model"],
            str(row["requests"]),
            *(f"{row[name] * 1000:.0f}" for name in ("p50", "p95", "p99")),
            f"{row['within']:.1%}",
            f"{row['refused']:.1%}",
        ]
        for row in report.replayed.groups
    ]
    print(table(["model", "requests", "p50 ms", "p95 ms", "p99 ms", "in time", "refused"], rows))
    sending = report.sending
    print(
        f"send lag p50 {sending.lag_p50 * 1000:.2f} ms, p99 {sending.lag_p99 * 1000:.2f} ms of "
        f"{sending.limit * 1000:.0f}, longest {sending.lag_max * 1000:.1f}; the sender used "
        f"{sending.cpu_share:.0%} of a core"
    )
    for device in report.replayed.devices:
        print(f"{device.name}: {device.peak_bytes / 2**20:.0f} MiB at most, busy {device.busy_share:.0%}")
    missed = list(report.void)
    if report.replayed.refused:
        missed.append(f"{report.replayed.refused} requests were not answered: {report.replayed.outcomes}")
    return verdict(missed)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few seconds of it")
    parser.add_argument("--begin", type=float, default=600.0)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--store", type=Path, default=Path("~/.cache/serai").expanduser())
    parser.add_argument("--output", type=Path, default=Path("replay-azure"))
    asked = parser.parse_args(arguments)
    seconds = QUICK if asked.quick else asked.seconds
    return show(anyio.run(measure, asked.begin, seconds, asked.store, asked.output))


if __name__ == "__main__":
    sys.exit(main())
