"""What the requests of a hot model feel while another model loads and unloads, again and again.

A real server on this CPU, with one slot. One caller sends a text every 100 ms; windows of 4 s in which
nothing else happens take turns with windows in which another model is unloaded and loaded without a pause.
The objective is that the hot model's p99 rises by at most 10 %. A load is itself work for a core (reading,
building, laying matrices out anew), and caller and server share the cores there are. So the third row of
the table says what a mere process that spins costs the same caller, in turns with the others, and the rise
is judged against that floor: p99 while loading, over the larger of p99 in quiet and p99 beside the spinning
process. Three minutes. `python -m loadtests.load_beside`; exits with 1 when it is missed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median

import httpx

from loadtests.tables import percentile, table, verdict
from tests.acceptance.asking import JSON, MINILM, PII, encode
from tests.acceptance.serving import PATIENCE, Server, serving

EVERY, WINDOW, TURNS, GOAL = 0.1, 4.0, 15, 1.10
HOT, OTHER = MINILM, PII


@dataclass(slots=True)
class Seen:
    """Latencies in seconds, by window."""

    quiet: list[list[float]] = field(default_factory=list)
    loading: list[list[float]] = field(default_factory=list)
    spinning: list[list[float]] = field(default_factory=list)
    loads: int = 0

    def rise(self) -> float:
        """The median request while loading over that in quiet, of the median pair of windows."""
        return median(median(b) / median(a) for a, b in zip(self.quiet, self.loading, strict=True))


def measure(server: Server, turns: int, seconds: float, spin: bool) -> Seen:
    """Everything in turns, so that a busy machine slows all of it alike."""
    seen = Seen()
    for model in (OTHER, HOT):
        order(server, model, "load")
    window(server, 1.0)
    for _ in range(turns):
        seen.quiet.append(window(server, seconds))
        with reloading(server, OTHER) as loads:
            seen.loading.append(window(server, seconds))
        seen.loads += loads()
        with spinning() if spin else nullcontext():
            if spin:
                seen.spinning.append(window(server, seconds))
    return seen


def window(server: Server, seconds: float) -> list[float]:
    """Latencies of a request every 100 ms, from when each should have been sent."""
    path, body = encode("a parcel for the harbour and another one")
    latencies, began = list[float](), time.perf_counter()
    for number in range(int(seconds / EVERY)):
        due = began + number * EVERY
        time.sleep(max(0.0, due - time.perf_counter()))
        server.http.post(path, json=body, headers=JSON).raise_for_status()
        latencies.append(time.perf_counter() - due)
    return latencies


def order(server: Server, model: str, action: str, http: httpx.Client | None = None) -> None:
    (http or server.http).post(f"/v1/admin/models/{model}/{action}").raise_for_status()


@contextmanager
def reloading(server: Server, model: str) -> Iterator[Callable[[], int]]:
    """Until the block ends `model` leaves and comes back without a pause; says how often it came."""
    stop, done = threading.Event(), list[float]()

    def work() -> None:
        with httpx.Client(base_url=server.url, timeout=PATIENCE) as http:
            while not stop.is_set():
                order(server, model, "unload", http)
                order(server, model, "load", http)
                done.append(time.perf_counter())

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield lambda: len(done)
    finally:
        stop.set()
        thread.join()


@contextmanager
def spinning() -> Iterator[None]:
    """A process that keeps one core busy, as a load does."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def p99(windows: Sequence[Sequence[float]]) -> float:
    return percentile(chain.from_iterable(windows), 0.99)


def judged(seen: Seen) -> float:
    """p99 while loading over p99 in quiet, or over p99 beside a spinning process where that is more."""
    return p99(seen.loading) / max(p99(seen.quiet), p99(seen.spinning))


def show(seen: Seen) -> str:
    rows = []
    for name, windows in (
        ("quiet", seen.quiet),
        (f"another model loads ({seen.loads} times)", seen.loading),
        ("a process spins on a core", seen.spinning),
    ):
        row = [name]
        for share in (0.5, 0.9, 0.99):
            quiet, here = (percentile(chain.from_iterable(of), share) for of in (seen.quiet, windows))
            row.append(f"{1e3 * here:.1f} ({here / quiet:.2f}x)")
        rows.append(row)
    return table(["ms (of quiet)", "p50", "p90", "p99"], rows)


def missed(seen: Seen) -> list[str]:
    if (rise := judged(seen)) <= GOAL:
        return []
    plain = p99(seen.loading) / p99(seen.quiet)
    floor = f"{rise:.2f} times that of a core taken away (goal {GOAL}), {plain:.2f} times that in quiet"
    return [f"p99 while another model loads is {floor}"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two short turns, to see that it runs")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        with serving(Path(place), memory="1GiB", slots=1) as server:
            seen = measure(server, *((2, 1.0) if chosen.quick else (TURNS, WINDOW)), spin=True)
    print(show(seen))
    return verdict(missed(seen))


if __name__ == "__main__":
    sys.exit(main())
