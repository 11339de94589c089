"""2,000 connections at once, each asking for one small encoding after another: who is answered, and how.

The load comes from a process of its own on one core; this one looks at memory and `/readyz` meanwhile.
An answer is right when it is 200, or QUEUE_FULL with a Retry-After, which the caller then waits.
`python -m loadtests.connections --seconds 60`; exits with 1 when an objective is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import httpx
from aiohttp import ClientError, ClientSession

from loadtests.tables import percentile, table, verdict
from tests.acceptance.asking import clients, encode
from tests.acceptance.serving import Server, serving

READY_P99, READY_MOST = 0.1, 1.0
"""Seconds."""
MAY_GROW = 0.1
"""Of what is resident after a third of the time.

Not all of that is a leak: torch and oneDNN keep something of each batch's shape that they have seen, 0.4 MiB
each, until both caches hold 1,024. With texts of one length only, nothing grows.
"""
RIGHT = {"200", "QUEUE_FULL"}
NO_RETRY = "without Retry-After"


async def caller(session: ClientSession, number: int, until: float, seen: Counter[str]) -> None:
    turn = 0
    while time.monotonic() < until:
        turn += 1
        wait = 0.0
        path, body = encode(f"parcel {number} of day {turn}")
        try:
            async with session.post(path, json=body) as answer:
                said = await answer.json()
            code = "200" if answer.status == 200 else said["detail"]["code"]
            seen[code] += 1
            if answer.status == 503:
                wait = float(answer.headers.get("Retry-After", 0))
                seen[NO_RETRY] += wait <= 0
        except (ClientError, TimeoutError) as error:
            seen[type(error).__name__] += 1
        await asyncio.sleep(wait)


async def drive(url: str, connections: int, seconds: float) -> Counter[str]:
    seen, until = Counter[str](), time.monotonic() + seconds
    async with clients(url) as session, asyncio.TaskGroup() as tasks:
        for number in range(connections):
            tasks.create_task(caller(session, number, until, seen))
    return seen


def generate(url: str, connections: int, seconds: float) -> None:
    """What the process of its own does: its result is one line of JSON."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(json.dumps(asyncio.run(drive(url, connections, seconds))))


def watch(server: Server, over: threading.Event, took: list[float], resident: list[int]) -> None:
    """Every fiftieth of a second, on a connection of its own."""
    with httpx.Client(base_url=server.url, timeout=30.0) as http:
        while not over.wait(0.02):
            began = time.perf_counter()
            http.get("/readyz").raise_for_status()
            took.append(time.perf_counter() - began)
            resident.append(server.seen.memory_info().rss)


def measure(connections: int, seconds: float) -> list[str]:
    """What missed its objective."""
    took, resident, over = list[float](), list[int](), threading.Event()
    with tempfile.TemporaryDirectory() as place, serving(Path(place), memory="1GiB") as server:
        path, body = encode("warm")
        server.until(lambda: server.http.post(path, json=body).status_code == 200)
        watcher = threading.Thread(target=watch, args=(server, over, took, resident))
        watcher.start()
        numbers = [str(connections), str(seconds)]
        command = [sys.executable, "-m", "loadtests.connections", "--generate", server.url, *numbers]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        finally:
            over.set()
            watcher.join()
    seen = Counter(json.loads(done.stdout))
    show(seen, took, resident, seconds)
    return missed(seen, took, resident)


def show(seen: Counter[str], took: Sequence[float], resident: Sequence[int], seconds: float) -> None:
    rows = [[what, f"{count:,}", f"{count / seconds:,.0f}"] for what, count in sorted(seen.items())]
    print(table(["answer", "count", "a second"], rows), end="\n\n")
    tenths = [resident[len(resident) * n // 10] >> 20 for n in range(10)] + [resident[-1] >> 20]
    print(f"resident, MiB, by tenths of the time: {', '.join(map(str, tenths))}")
    said = f"p50 {1000 * percentile(took, 0.5):.0f} ms, p99 {1000 * percentile(took, 0.99):.0f} ms"
    print(f"/readyz of {len(took)}: {said}, max {1000 * max(took):.0f} ms")


def missed(seen: Counter[str], took: Sequence[float], resident: Sequence[int]) -> list[str]:
    told = [f"{count} x {what}" for what, count in seen.items() if what not in RIGHT and count]
    settled = resident[len(resident) // 3]
    if resident[-1] > settled * (1 + MAY_GROW):
        told.append(f"resident grew from {settled >> 20} to {resident[-1] >> 20} MiB")
    if percentile(took, 0.99) > READY_P99:
        told.append(f"/readyz p99 is {1000 * percentile(took, 0.99):.0f} ms (goal {1000 * READY_P99:.0f})")
    if max(took) > READY_MOST:
        told.append(f"/readyz took {max(took):.2f} s once (goal {READY_MOST:.0f})")
    return told


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true", help="200 for five seconds, to see that it runs")
    parser.add_argument("--generate", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.generate:
        url, connections, seconds = chosen.generate
        generate(url, int(connections), float(seconds))
        return 0
    return verdict(measure(200, 5.0) if chosen.quick else measure(chosen.connections, chosen.seconds))


if __name__ == "__main__":
    sys.exit(main())
