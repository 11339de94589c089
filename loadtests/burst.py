"""A burst of short requests at an idle device: into how many batches it goes, and how long it takes.

64 requests of at most 16 tokens come within 5 ms, every two seconds, in virtual time on the cores that
serve. The objective is at most slots + 1 batches, from the second burst on: of the first nothing could be
known. The baseline is the run time of all 64 as one batch. A few seconds.
`--live` sends bursts over HTTP to a real server on this CPU, beside the same requests one after another;
its objective is that a burst takes no longer than half of that. `python -m loadtests.burst`; exits with 1
when an objective is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import ClientSession

from loadtests.cards import Unchecked, card
from loadtests.tables import table, verdict
from tests.acceptance.asking import Call, ask, clients, encode
from tests.acceptance.serving import Server, serving

SIZE, WITHIN, APART = 64, 0.005, 2.0
BATCH_SECONDS = {"a card": (0.001, 0.00001), "a core": (0.004, 0.0003)}
"""Base of a batch, and seconds of one token."""
SLOTS = (1, 2, 4)
LIVE_GOAL = 0.5


@dataclass(frozen=True, slots=True)
class Burst:
    """How one went: batches, and seconds from each request to its answer."""

    batches: int
    latencies: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Case:
    device: str
    slots: int
    bursts: tuple[Burst, ...]
    as_one: float
    """Seconds of one batch with all of it."""

    @property
    def later(self) -> tuple[Burst, ...]:
        return self.bursts[1:]


def measure(device: str, slots: int, count: int) -> Case:
    base, per_token = BATCH_SECONDS[device]
    twin = Unchecked(*card(base, per_token), slots=slots)
    twin.ask("load", "m")
    rng, sent = random.Random(slots), list[list[str]]()
    for number in range(count):
        jobs: list[str] = []
        sent.append(jobs)
        for _ in range(SIZE):
            when = APART * (1 + number) + rng.uniform(0, WITHIN)
            twin.at(when, lambda jobs=jobs: jobs.append(twin.submit("m", rng.randint(4, 16))))  # type: ignore[misc]
    twin.run(until=APART * (1 + count))
    bursts = []
    for number, jobs in enumerate(sent):
        began = APART * (1 + number)
        batches = sum(began <= ran.began < began + APART for ran in twin.batches("m"))
        bursts.append(Burst(batches, tuple(twin.latency(job) for job in jobs)))
    return Case(device, slots, tuple(bursts), base + SIZE * 10 * per_token)


def show(cases: Sequence[Case]) -> str:
    rows = []
    for case in cases:
        latencies = [seconds for burst in case.later for seconds in burst.latencies]
        worst = max(latencies)
        rows.append(
            [
                f"{case.device}, {case.slots} slots",
                str(case.bursts[0].batches),
                str(max(burst.batches for burst in case.later)),
                str(case.slots + 1),
                f"{1e3 * statistics.median(latencies):.1f}",
                f"{1e3 * worst:.1f}",
                f"{worst / case.as_one:.1f}x",
            ]
        )
    heads = ["64 requests within 5 ms", "first burst's batches", "later, worst", "goal"]
    return table([*heads, "p50 ms", "worst ms", "of one batch"], rows)


def missed(cases: Sequence[Case]) -> list[str]:
    return [
        f"{case.device}, {case.slots} slots: a burst became {burst.batches} batches (goal {case.slots + 1})"
        for case in cases
        for burst in case.later
        if burst.batches > case.slots + 1
    ]


async def live(server: Server, count: int) -> tuple[list[Burst], float]:
    """Bursts over HTTP, and the seconds that the same requests take one after another."""
    calls = [encode(f"parcel {n} for the harbour") for n in range(SIZE)]

    async def timed(session: ClientSession, call: Call) -> float:
        began = time.perf_counter()
        status, body = await ask(session, call)
        assert status == 200, body
        return time.perf_counter() - began

    bursts, alone = [], []
    async with clients(server.url) as session:
        await timed(session, calls[0])
        for _ in range(count):
            before = await asyncio.to_thread(server.total, "serai_batches_total")
            latencies = await asyncio.gather(*[timed(session, call) for call in calls])
            after = await asyncio.to_thread(server.total, "serai_batches_total")
            bursts.append(Burst(int(after - before), tuple(latencies)))
            began = time.perf_counter()
            for call in calls:
                await timed(session, call)
            alone.append(time.perf_counter() - began)
    return bursts, statistics.median(alone)


def run_live(count: int) -> int:
    with tempfile.TemporaryDirectory() as place, serving(Path(place), memory="1GiB") as server:
        bursts, alone = asyncio.run(live(server, count))
    whole = statistics.median(max(burst.latencies) for burst in bursts)
    rows = [
        [
            "live, MiniLM, CPU",
            f"{statistics.median(burst.batches for burst in bursts):.0f}",
            f"{1e3 * statistics.median(s for burst in bursts for s in burst.latencies):.0f}",
            f"{1e3 * whole:.0f}",
            f"{1e3 * alone:.0f}",
            f"{whole / alone:.2f} (goal {LIVE_GOAL})",
        ]
    ]
    heads = ["64 requests at once", "batches", "p50 ms", "all of it ms", "one after another ms", "ratio"]
    print(table(heads, rows))
    late = whole > LIVE_GOAL * alone
    return verdict(
        [f"live: a burst took {whole / alone:.2f} of one by one (goal {LIVE_GOAL})"] if late else []
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few bursts, to see that it runs")
    parser.add_argument("--live", action="store_true", help="over HTTP against a real server")
    chosen = parser.parse_args(arguments)
    count = 3 if chosen.quick else 20
    if chosen.live:
        return run_live(min(count, 5))
    cases = [measure(device, slots, count) for device in BATCH_SECONDS for slots in SLOTS]
    print(show(cases))
    return verdict(missed(cases))


if __name__ == "__main__":
    sys.exit(main())
