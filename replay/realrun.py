"""The same traffic on the real engine, in this process, and in the twin: what a validation compares."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from engine import __version__
from engine.catalog import Catalog
from engine.config import Settings
from engine.parts import Parts
from engine.running import open_engine
from engine.units import base
from replay.configurations import Configuration, around
from replay.plan import Basis, curves_version
from replay.recording import Recording, read_database
from replay.replaying.run import run
from replay.replaying.wanted import Chosen
from replay.replaying.within import Within
from replay.trace import Trace
from replay.twin.server import Server
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate
from replay.validation import Measured, Tried, Validation, errors, kendall, middle, p95, served

NAME = "run"

SEEDS = 5
"""Runs of the twin, of which the one in the middle counts: one alone may be lucky."""

PART = 0.3
"""Of the stretch, for each configuration: ranks need fewer requests than tails do."""

LEARNING, REST = 0.25, 1.0
"""Of a part, what comes before it comes all at once; and seconds without any traffic in between."""

AS_IT_IS = Configuration("as it is")

Opening = Callable[[Settings, Path], Awaitable[Parts | None]]
"""What the engine stands on, with its databases in this folder; None: what the settings say."""

Told = Callable[[str], None]
"""What is done next."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One real run."""

    measured: Measured
    recording: Recording
    lag: float
    """p99 of the sending, in seconds: a run that lags says nothing."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where real runs are made."""

    settings: Settings
    catalog: Catalog
    seed: int = 0
    opening: Opening | None = None

    async def run(self, trace: Trace, settings: Settings, there: Sequence[str] = ()) -> Ran:
        """Open loop, on an engine that is opened for it and has loaded these models, and its pins."""
        with TemporaryDirectory() as folder:
            here = {"state_dir": Path(folder), "recording": True}
            own = settings.model_copy(update=here)
            parts = await self.opening(own, Path(folder)) if self.opening is not None else None
            async with open_engine(own, self.catalog, parts) as engine:
                for model in (*own.pins, *there):
                    await engine.load(model)
                await engine.recordings.start(NAME)
                sent = Chosen(trace, None, np.zeros(len(trace)))
                done = await run(sent, Within(engine), seed=self.seed)
                await engine.recordings.stop()
            recording = read_database(Path(folder) / "traffic.db", NAME)
        lag = float(np.quantile(done.log.lag, 0.99)) if len(done.log.lag) else 0.0
        return Ran(measured_of(recording), recording, lag)


def measured_of(recording: Recording) -> Measured:
    """What the server itself says of a run: how late the sender was is no part of it."""
    loads = Counter(base(change["unit"]) for change in recording.changes if change["event"] == "loaded")
    peaks: dict[str, int] = {}
    used: Counter[float] = Counter()
    for sample in recording.samples:
        used[round(float(sample["at"]))] += sum(sample.get("lines", {}).values())
        for unit, size in sample.get("units", {}).items():
            peaks[base(unit)] = max(peaks.get(base(unit), 0), int(size))
    return Measured(recording.answers(), dict(loads), peaks, max(used.values(), default=0))


def in_the_twin(server: Server, recording: Recording, seed: int = 0) -> list[Measured]:
    """What the twin says of the traffic that came in a real run, several times over."""
    sent = Traffic.of(recording.trace(), server)
    return [_in_the_twin(server, sent, seed + n) for n in range(SEEDS)]


def _in_the_twin(server: Server, sent: Traffic, seed: int) -> Measured:
    results = simulate(server, sent, seed)
    loads = {unit: results.swaps(unit) for unit in results.answers.models}
    peaks = {unit: server.units[unit].footprint.weights_bytes for unit, _ in results.peaks.units}
    return Measured(results.answers, loads, peaks, sum(results.peaks.devices.values()))


def one_of_each(trace: Trace) -> Trace:
    """The first request for each model: what the first load in a process takes (libraries, cold files) is no
    reading of a server that has been up for a while."""
    first = trace.take(np.sort(np.unique(trace.model, return_index=True)[1]))
    return replace(first, arrived=np.zeros(len(first)))


async def validate(
    basis: Basis,
    bench: Bench,
    seconds: float,
    choices: Sequence[Configuration] | None = None,
    told: Told = lambda said: None,
) -> tuple[Validation, float]:
    """The first `seconds` of the basis's traffic, twice on the real engine and in the twin; a part of it
    under each configuration, and at once, in both. And the worse p99 lag of the first two."""
    trace = basis.part.between(0, seconds)
    short = trace.between(0, PART * seconds)
    choices = around(basis.server, basis.traffic) if choices is None else choices
    told("one request of each model")
    await bench.run(one_of_each(trace), bench.settings)
    told(f"{len(trace)} requests in {trace.span:.0f} s")
    one, twins = await _both(AS_IT_IS, basis, bench, trace)
    told("the same again")
    two, _ = await _both(AS_IT_IS, basis, bench, trace)
    noise = tuple(errors(one.measured, two.measured))
    rows = []
    for choice in choices:
        told(choice.name)
        rows.append(_tried(choice, *await _both(choice, basis, bench, short)))
    told("all of it at once")
    flooded, drowned = await _both(AS_IT_IS, basis, bench, flood(short))
    validation = Validation(
        at=time.time(),
        curves=curves_version(basis.server),
        engine=__version__,
        devices=tuple(device["name"] for device in one.recording.snapshot["devices"]),
        trace=trace.name,
        errors=tuple(errors(one.measured, *twins)),
        noise=noise,
        capacity_error=middle([served_of(twin, len(short)) for twin in drowned])
        / served_of(flooded.measured, len(short))
        - 1,
        tau=kendall([row.real for row in rows], [row.twin for row in rows], abs(noise[0].p95)),
        tried=tuple(rows),
    )
    return validation, max(one.lag, two.lag)


def flood(trace: Trace) -> Trace:
    """All of it at once, after a first part as it came: a server that knows no run times yet makes one batch
    of whatever has come by then, so that chance alone would say how much of a burst it serves."""
    calm = max(1, round(LEARNING * len(trace)))
    first = trace.arrived[:calm]
    both = trace.take(np.concatenate([np.arange(calm), np.arange(len(trace))]))
    return replace(both, arrived=np.concatenate([first, first[-1] + REST + np.linspace(0, 0.01, len(trace))]))


def served_of(flooded: Measured, count: int) -> float:
    """Answers a second to the last `count`, those that came at once."""
    answers = flooded.answers
    return served(replace(flooded, answers=answers.take(np.arange(len(answers)) >= len(answers) - count)))


async def _both(
    choice: Configuration, basis: Basis, bench: Bench, trace: Trace
) -> tuple[Ran, list[Measured]]:
    """In earnest, and what the twin says of what came there."""
    server = choice.server(basis.server, bench.settings)
    real = await bench.run(choice.trace(trace), choice.settings(bench.settings), server.resident)
    return real, in_the_twin(server, real.recording, basis.seed)


def _tried(choice: Configuration, real: Ran, twins: Sequence[Measured]) -> Tried:
    loads = round(middle([sum(twin.swaps.values()) for twin in twins]))
    swaps = (sum(real.measured.swaps.values()), loads)
    return Tried(choice.name, p95(real.measured), middle([p95(twin) for twin in twins]), swaps, real.lag)
