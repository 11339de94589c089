"""Ten minutes of everything at once against a real server, and whether anything of it adds up.

Mixed traffic from several callers: every kind of task that the starter models do, under a budget that holds
only some of them, so that models are loaded and evicted all along; callers who hang up; bad input of several
kinds. Resident memory, descriptors, threads, child processes, held requests and waiting jobs are sampled.
After the first third, in which pools and caches fill, memory, descriptors, threads and children must be
flat: a line through the samples (the median slope of all pairs, Sen 1968) rises less than they scatter, or
than a small share. At the end nothing is held and nothing waits.
`python -m loadtests.soak`, ten minutes or `--minutes`; exits with 1 when something grows.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import statistics
import sys
import tempfile
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout

from loadtests.starters import MODELS, call, weights_bytes
from loadtests.tables import table, verdict
from tests.acceptance.asking import DOCUMENTS, WRITER, Call, ask, clients, encode, extract
from tests.acceptance.serving import Server, serving

CALLERS, SAMPLES = 6, 60
KINDS = ("good", "many", "bad", "hung up", "written", "converted")
SHARES = (70, 8, 10, 10, 1, 1)
RISE = {"rss": 0.02, "descriptors": 0.05, "threads": 0.05, "children": 0.0}
"""What a line through the samples may rise over the time they cover, as a share of their median."""

BAD: tuple[Call, ...] = (
    ("/v1/encode/no/such-model", {"items": [{"text": "a"}]}),
    (f"/v1/encode/{MODELS[0]}", {"items": []}),
    (f"/v1/encode/{MODELS[0]}", {"items": [{"text": 7}]}),
    (f"/v1/score/{MODELS[0]}", {"query": {"text": "a"}, "items": [{"text": "b"}]}),
    extract("a", model=MODELS[0]),
    encode("a", output_types=["smell"]),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """The server at one moment."""

    at: float
    rss: int
    descriptors: int
    threads: int
    children: int
    held: int
    """Bytes of requests that are not over."""
    waiting: int


async def caller(session: ClientSession, seed: int, end: float, seen: Counter[str]) -> None:
    """One request after the other until `end`: good, bad, given up, written."""
    rng = random.Random(seed)
    for number in itertools.count(seed * 1_000_000):
        if time.monotonic() > end:
            return
        kind = rng.choices(KINDS, SHARES)[0]
        model = rng.choice(MODELS)
        if kind == "bad":
            asked = rng.choice(BAD)
            status, _ = await ask(session, asked)
            assert 400 <= status < 500, (status, asked)
        elif kind == "hung up":
            await give_up(session, call(model, number), rng.uniform(0.001, 0.05))
        elif kind == "many":
            status, _ = await ask(session, encode(*[f"parcel {number} {n}" for n in range(40)]))
            seen[str(status)] += 1
        else:
            made = {"written": written, "converted": converted}.get(kind, partial(call, model))
            status, _ = await ask(session, made(number))
            seen[str(status)] += 1
        seen[kind] += 1


def written(number: int) -> Call:
    return f"/v1/generate/{WRITER.replace('/', '__')}", {"prompt": f"Parcel {number}", "max_new_tokens": 8}


def converted(number: int) -> Call:
    """A document, which goes to a child process."""
    data = b64encode(f"# Parcel {number}\n\nIt went to the harbour.".encode()).decode()
    return f"/v1/extract/{DOCUMENTS}", {"items": [{"document": {"data": data, "format": "md"}}]}


async def give_up(session: ClientSession, asked: Call, after: float) -> None:
    path, body = asked
    try:
        async with session.post(path, json=body, timeout=ClientTimeout(after)) as answer:
            await answer.read()
    except (TimeoutError, ClientError):
        return


async def sampling(server: Server, apart: float, samples: list[Sample]) -> None:
    while True:
        await asyncio.sleep(apart)
        samples.append(await asyncio.to_thread(look, server))


def look(server: Server) -> Sample:
    return Sample(
        at=time.monotonic(),
        rss=server.seen.memory_info().rss,
        descriptors=server.seen.num_fds(),
        threads=server.seen.num_threads(),
        children=len(server.seen.children(recursive=True)),
        held=int(server.total("serai_held_request_bytes")),
        waiting=int(server.total("serai_waiting_jobs")),
    )


async def drive(server: Server, seconds: float) -> tuple[list[Sample], Sample, Counter[str]]:
    """Samples under load, one at rest after it, and what was sent and answered."""
    samples, seen = list[Sample](), Counter[str]()
    async with clients(server.url) as session, asyncio.TaskGroup() as tasks:
        for asked in (*(call(model, -1) for model in MODELS), written(-1), converted(-1)):
            await ask(session, asked)  # libraries are imported, children are there
        end = time.monotonic() + seconds
        sampler = tasks.create_task(sampling(server, seconds / SAMPLES, samples))
        callers = [tasks.create_task(caller(session, n, end, seen)) for n in range(CALLERS)]
        await asyncio.wait(callers)
        sampler.cancel()
    await asyncio.to_thread(server.until, lambda: not server.total("serai_held_request_bytes"))
    return samples, look(server), seen


def rise(samples: Sequence[Sample], name: str) -> tuple[float, float]:
    """By what share of their median the samples rise over their time; and of it, how far they scatter."""
    value: Callable[[Sample], float] = lambda sample: float(getattr(sample, name))  # noqa: E731
    pairs = itertools.combinations(samples, 2)
    slope = statistics.median((value(b) - value(a)) / (b.at - a.at) for a, b in pairs)
    middle = statistics.median(map(value, samples)) or 1.0
    scatter = statistics.median(abs(value(sample) - middle) for sample in samples)
    return slope * (samples[-1].at - samples[0].at) / middle, scatter / middle


def settled(samples: Sequence[Sample]) -> Sequence[Sample]:
    return samples[len(samples) // 3 :]


def show(samples: Sequence[Sample], rest: Sample, seen: Counter[str], server: str) -> str:
    rows = []
    for field in fields(Sample)[1:]:
        values = [getattr(sample, field.name) for sample in settled(samples)]
        judged = [""] * 3  # of what comes and goes with each request only the end counts
        if (most := RISE.get(field.name)) is not None:
            judged = [f"{share:+.1%}" for share in rise(settled(samples), field.name)] + [f"{most:.0%}"]
        unit = 2**20 if field.name == "rss" else 1
        ends = [f"{v / unit:,.0f}" for v in (values[0], max(values), values[-1], getattr(rest, field.name))]
        rows.append([field.name, *ends, *judged])
    sent = ", ".join(f"{count} {what}" for what, count in sorted(seen.items()))
    heads = ["after a third", "first", "most", "last", "at rest", "rise", "scatter", "may rise"]
    return "\n".join([table(heads, rows), f"{sent}; {server}"])


def missed(samples: Sequence[Sample], rest: Sample) -> list[str]:
    told = []
    for name, most in RISE.items():
        grown, scatter = rise(settled(samples), name)
        if grown > max(most, scatter):
            told.append(f"{name} rises by {grown:.1%} over the run (may: {max(most, scatter):.1%})")
    if rest.held or rest.waiting:
        told.append(f"at rest {rest.held} bytes are held and {rest.waiting} jobs wait")
    return told


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--quick", action="store_true", help="ten seconds, to see that it runs")
    chosen = parser.parse_args(arguments)
    memory = sum(weights_bytes().values()) * 3 // 4 + 256 * 2**20
    with tempfile.TemporaryDirectory() as place:
        with serving(Path(place), memory=memory, log_level="warning") as server:
            try:
                samples, rest, seen = asyncio.run(
                    drive(server, 10.0 if chosen.quick else 60 * chosen.minutes)
                )
            except ExceptionGroup:
                print(server.said())
                raise
            loads = server.total("serai_residency_changes_total", event="loaded")
            evictions = server.total("serai_residency_changes_total", event="evicted")
    print(show(samples, rest, seen, f"{loads:.0f} loads, {evictions:.0f} evictions"))
    return verdict(missed(samples, rest))


if __name__ == "__main__":
    sys.exit(main())
