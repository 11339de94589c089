"""A ramp on a live target: the recording's own bursts at rising rates, until a target breaks; and down again.

Three sweeps, of which the last descends: what takes longer to recover than to break shows there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import anyio
import numpy as np

from engine.catalog import ModelSpec
from engine.requests import Request
from replay import groups
from replay import knee as knees
from replay.answers import Answers
from replay.groups import groups_of, rows_by_group
from replay.knee import Knee
from replay.payloads import Line, Maker
from replay.ramp import Dwell, Ramp
from replay.replaying.log import Log
from replay.replaying.lost import Lookout
from replay.replaying.run import maker_for
from replay.replaying.sending import Told, replay
from replay.replaying.target import Target
from replay.replaying.wanted import Chosen
from replay.report import verdict
from replay.steps import Step
from replay.sweeps import WARM_UP, Judged, stretch
from replay.trace import Floats, Trace
from replay.twin.traffic import Traffic

BURST = 200
"""Requests that are sent at once, to see about how many a second come back."""

LOWEST = 0.1
"""Of that rate, where a ramp begins."""


@dataclass(slots=True)
class Climb:
    """What a ramp has measured so far. It may be looked at after every step."""

    sweeps: list[list[Judged]] = field(default_factory=list)
    void: list[str] = field(default_factory=list)
    """Steps of which nothing may be relied on, and why."""
    aborted: bool = False

    def knee(self, seed: int) -> Knee:
        """Of all models together: p99 in targets."""
        return knees.find([sweep for sweep in self.sweeps if sweep], 1.0, seed)

    def by_model(self, seed: int) -> dict[str, Knee]:
        """At the rate of all models together."""
        found: dict[str, Knee] = {}
        keys = dict.fromkeys(key for sweep in self.sweeps for step in sweep for key in step.parts)
        for key in keys:
            own = [[s.parts[key] for s in sweep if key in s.parts] for sweep in self.sweeps]
            target = next(s.targets[key] for sweep in self.sweeps for s in sweep if key in s.parts)
            found[f"{key[0]}, {key[1].name.lower()}"] = knees.find([o for o in own if o], target, seed)
        return found

    def as_json(self, seed: int) -> dict[str, Any]:
        """With every latency, so that the knee can be found again from it."""
        done = any(self.sweeps)
        return {
            "knee": asdict(self.knee(seed)) if done else None,
            "models": {name: asdict(knee) for name, knee in self.by_model(seed).items()},
            "fails_first": str(self._fails_first() or ""),
            "void": self.void,
            "aborted": self.aborted,
            "sweeps": [[_step(judged) for judged in sweep] for sweep in self.sweeps],
        }

    def _fails_first(self) -> object:
        failed = [s for sweep in self.sweeps for s in sweep if s.worst is not None]
        return min(failed, key=lambda step: step.offered).worst if failed else None


def _step(judged: Judged) -> dict[str, Any]:
    return {
        "offered": judged.offered,
        "seconds": judged.end - judged.begin,
        "served": judged.served,
        "holds": judged.passes(1.0),
        "groups": [asdict(group) for group in judged.found.values()],
        "parts": {
            f"{model}, {c.name.lower()}": _latencies(part) for (model, c), part in judged.parts.items()
        },
    }


def _latencies(part: Step) -> dict[str, Any]:
    return {
        "begin": part.begin,
        "end": part.end,
        "arrived": np.round(part.arrived, 4).tolist(),
        "latency": [round(x, 5) if np.isfinite(x) else None for x in part.latency.tolist()],
    }


@dataclass(frozen=True, slots=True)
class Climbing:
    """Whom, with what, and to what end."""

    target: Target
    trace: Trace
    specs: Sequence[ModelSpec]
    lines: Mapping[int, Line]
    kept: Mapping[int, Request]
    wanted: groups.Target
    seed: int
    stop: anyio.Event
    told: Told

    async def step(self, rate: float, seconds: float, number: int, climb: Climb) -> Judged:
        warm = seconds * WARM_UP
        piece = stretch(Traffic(self.trace, ()), rate, seconds + warm, self.seed * 1000 + number).trace
        log, lookout = Log(piece), Lookout.over(piece, self.wanted, warm)
        maker = Maker(piece, self.specs, self.seed * 1000 + number, self.lines, self.kept)
        await replay(log, maker, self.target, stop=self.stop, told=self.told, lost=lookout.lost)
        return self._judged(log, rate, warm, warm + seconds, climb)

    def _judged(self, log: Log, rate: float, warm: float, end: float, climb: Climb) -> Judged:
        """Of a step that ended early: what came so shortly before that its target had not passed is left out
        of its group, and what was served counts from the begin, or the queue of the warm-up would hide it."""
        answers = every = log.answers()
        begin = warm
        if log.lost:
            begin, end = 0.0, log.ended - log.begin
            counts = every.arrived <= end - _targets(every, self.wanted)
            answers = replace(every, arrived=np.where(counts, every.arrived, -math.inf))
        met = {(g.unit, g.service_class): g for g in groups_of(answers, self.wanted, warm) if g.judged}
        tightest = min((group.target for group in met.values()), default=0.0)
        for why in verdict.of(log, tightest, self.target.shares_process).void:
            climb.void.append(f"{rate:.3g} requests/s: {why}")
        rows = rows_by_group(answers, warm)
        counted = np.flatnonzero(every.arrived >= begin)
        parts = {
            key: Step(rate, warm, end, answers.arrived[rows[key]], answers.latency[rows[key]]) for key in met
        }
        return Judged(
            rate, begin, end, every.arrived[counted], every.latency[counted], parts=parts, found=met
        )


def _targets(answers: Answers, wanted: groups.Target) -> Floats:
    """(n,): of each row's model and class."""
    found = np.zeros(len(answers))
    for key, rows in rows_by_group(answers).items():
        found[rows] = wanted(*key)
    return found


async def climb(
    chosen: Chosen,
    target: Target,
    wanted: groups.Target,
    *,
    seed: int,
    dwell: Dwell,
    stop: anyio.Event,
    kept: Mapping[int, Request] | None = None,
    told: Told = lambda log: None,
    after: Callable[[Climb], None] = lambda climb: None,
) -> Climb:
    """`after` is called with all that is known after every step: what was measured is never lost."""
    maker = await maker_for(chosen, target, seed, kept)
    climbing = Climbing(target, chosen.trace, maker.specs, maker.lines, kept or {}, wanted, seed, stop, told)
    done, lengths = Climb(), dict[float, float]()
    first = LOWEST * await burst(climbing)
    for number in range(2):
        sweep: list[Judged] = []
        done.sweeps.append(sweep)
        ramp = Ramp(first, 1.0, dwell)
        while not stop.is_set() and (asked := ramp.next()) is not None:
            rate, seconds = asked
            lengths[rate] = seconds
            judged = await climbing.step(rate, seconds, number * 100 + len(sweep), done)
            if stop.is_set():
                break
            ramp.observe(judged)
            if len(ramp.steps) == len(sweep):
                continue  # it was short and failed: it is to be run again
            sweep.append(judged)
            after(done)
    await _down(climbing, done, lengths, after)
    done.aborted = stop.is_set()
    return done


async def _down(
    climbing: Climbing, done: Climb, lengths: Mapping[float, float], after: Callable[[Climb], None]
) -> None:
    """The rates of the first sweep again, from the highest, each as long as it was to last then."""
    stop = climbing.stop
    sweep: list[Judged] = []
    done.sweeps.append(sweep)
    for step in sorted(done.sweeps[0], key=lambda step: -step.offered):
        if stop.is_set():
            return
        judged = await climbing.step(step.offered, lengths[step.offered], 200 + len(sweep), done)
        if stop.is_set():
            return
        sweep.append(judged)
        after(done)


async def burst(climbing: Climbing) -> float:
    """About how many requests a second can be served: many at once, once when all is cold and once warm."""
    count = min(BURST, len(climbing.trace))
    piece = climbing.trace.take(np.arange(count))
    piece = replace(piece, arrived=np.zeros(count))
    rate = 1.0
    for number in range(2):
        log = Log(piece)
        maker = Maker(piece, climbing.specs, climbing.seed + number, climbing.lines, climbing.kept)
        await replay(log, maker, climbing.target, stop=climbing.stop)
        last = log.done[~np.isnan(log.done)]
        took = float(last.max()) - log.begin if len(last) else 1.0
        good = int(np.isfinite(log.answers().latency).sum())
        rate = max(good, 1) / max(took, 1e-3)
    return rate
