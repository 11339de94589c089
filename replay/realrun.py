"""The same traffic on the real engine, in this process, and in the twin: what a validation compares."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from engine import __version__
from engine.catalog import Catalog
from engine.config import Settings
from engine.parts import Parts
from engine.running import open_engine
from engine.units import base
from replay.answers import Answers
from replay.plan import Basis, curves_version
from replay.recording import Recording, read_database
from replay.replaying.run import run
from replay.replaying.wanted import Chosen
from replay.replaying.within import Within
from replay.trace import Trace
from replay.twin.server import Server
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate
from replay.validation import Measured, Validation, errors

NAME = "run"

Opening = Callable[[Settings, Path], Awaitable[Parts | None]]
"""What the engine stands on, with its databases in this folder; None: what the settings say."""


async def real_run(
    settings: Settings, catalog: Catalog, trace: Trace, seed: int = 0, opening: Opening | None = None
) -> tuple[Measured, Recording, float]:
    """Open loop, on an engine that is opened for it and knows nothing yet. And the p99 lag of the sending
    in seconds: a run that lags says nothing."""
    with TemporaryDirectory() as folder:
        own = settings.model_copy(update={"state_dir": Path(folder), "recording": True})
        parts = await opening(own, Path(folder)) if opening is not None else None
        async with open_engine(own, catalog, parts) as engine:
            await engine.recordings.start(NAME)
            done = await run(Chosen(trace, None, np.zeros(len(trace))), Within(engine), seed=seed)
            await engine.recordings.stop()
        recording = read_database(Path(folder) / "traffic.db", NAME)
    lag = float(np.quantile(done.log.lag, 0.99)) if len(done.log.lag) else 0.0
    return measured_of(recording, done.log.answers()), recording, lag


def measured_of(recording: Recording, answers: Answers) -> Measured:
    """A recording's loads and peaks, with the answers as their sender saw them."""
    loads = Counter(base(change["unit"]) for change in recording.changes if change["event"] == "loaded")
    peaks: dict[str, int] = {}
    used: Counter[float] = Counter()
    for sample in recording.samples:
        used[round(float(sample["at"]))] += sum(sample.get("lines", {}).values())
        for unit, size in sample.get("units", {}).items():
            peaks[base(unit)] = max(peaks.get(base(unit), 0), int(size))
    return Measured(answers, dict(loads), peaks, max(used.values(), default=0))


def in_the_twin(server: Server, trace: Trace, seed: int = 0) -> Measured:
    """What the twin says of an engine that was just opened: nothing is there, and nothing is learned."""
    fresh = replace(server, resident=(), curves={}, workspaces={})
    results = simulate(fresh, Traffic.of(trace, server), seed)
    loads = {unit: results.swaps(unit) for unit in results.answers.models}
    peaks = {unit: server.units[unit].footprint.weights_bytes for unit, _ in results.peaks.units}
    return Measured(results.answers, loads, peaks, sum(results.peaks.devices.values()))


def one_of_each(trace: Trace) -> Trace:
    """The first request for each model: what the first load in a process takes (libraries, cold files) is no
    reading of a server that has been up for a while."""
    first = trace.take(np.sort(np.unique(trace.model, return_index=True)[1]))
    return replace(first, arrived=np.zeros(len(first)))


async def validate(
    basis: Basis, settings: Settings, catalog: Catalog, seconds: float, opening: Opening | None = None
) -> tuple[Validation, float]:
    """The first `seconds` of the basis's traffic, twice on the real engine and once in the twin. And the
    worse p99 lag of the two."""
    trace = basis.part.between(0, seconds)
    await real_run(settings, catalog, one_of_each(trace), basis.seed, opening)
    one, recording, lag = await real_run(settings, catalog, trace, basis.seed, opening)
    two, _, other_lag = await real_run(settings, catalog, trace, basis.seed, opening)
    validation = Validation(
        at=time.time(),
        curves=curves_version(basis.server),
        engine=__version__,
        devices=tuple(device["name"] for device in recording.snapshot["devices"]),
        trace=trace.name,
        errors=tuple(errors(one, in_the_twin(basis.server, trace, basis.seed))),
        noise=tuple(errors(one, two)),
    )
    return validation, max(lag, other_lag)
