"""What scheduling costs: CPU microseconds for each request, in the pure cores and through the actors.

Callers in groups of a batch each, closed loop: a group is answered together and sends the next batch to
the next unit. So batches are full whatever waits, and a cell differs from its neighbour only in how much
waits and for how many units. `cores` drives `Dispatch` and `Custody` directly: admission, queue, policy,
lease, batch, release; what the batch itself answers is made beside the clock. `actors` is all of
`Engine.submit` in virtual time on a device that computes nothing: router, preparation, batcher, memory
manager, runner, telemetry, and the caller's own task.
A last row has one caller alone, whose every request is a batch of its own. It has no objective: it pays
for a whole batch. Two minutes. `python -m loadtests.scheduling_cost`; exits with 1 when an objective is
missed.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from engine.conversation import Finished, Need, Outcome, Release, Run, Unwanted, Wanted
from engine.engine import Engine
from engine.memory.custody import Custody
from engine.requests import Item, Request, ScoreOptions, ServiceClass, Task
from engine.scheduling.dispatch import Dispatch
from engine.scheduling.effects import Done
from engine.scheduling.lanes import Job
from engine.scheduling.rules import SchedulingRules
from loadtests.tables import table, verdict
from replay.virtualtime import VirtualTimeLoop
from tests.engine.twin import Sim, Twin
from tests.simulation import MIB, catalog, engine, model
from web.serving import GARBAGE

BATCH = 32
COST = 8
BACKLOGS = (0, 1_000, 10_000)
UNITS = (1, 12, 200)
CORE_GOAL, ACTOR_GOAL = 10.0, 60.0
"""Microseconds."""
FLAT = 2.0
"""The largest backlog may cost so many times the smallest; what is linear in it costs thousands of times."""
ROUNDS = 10
"""Of which the best counts: whatever else runs on the machine makes a round dearer, never cheaper."""
SECONDS = 0.005
"""What a batch takes, in virtual time."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Microseconds a request, by level, number of units and backlog; -1: one caller alone."""

    level: str
    units: int
    backlog: int
    microseconds: float


class Cores:
    """The two pure cores, each told at once what the other wants; loads and batches end when we say."""

    def __init__(self, units: int) -> None:
        names = [f"m{n}" for n in range(units)]
        sims = [
            Sim(name, weights=1, facts={"max_batch_cost": BATCH * COST}, workspace_per_cost=0.001)
            for name in names
        ]
        rules = SchedulingRules(max_waiting_jobs=100_000, max_model_jobs=100_000)
        twin = Twin(*sims, memory=100 * units + 10_000, rules=rules)
        for name in names:  # resident, all of them, before anything is measured
            twin.ask("load", name)
        twin.run(until=1000.0)
        self.names, self.now = names, 1000.0
        self.dispatch: Dispatch = twin.dispatch
        self.custody: Custody = twin.custody
        self.slot = next(iter(twin.slots))
        self.running: deque[Run] = deque()
        self._numbers = 0
        self._perform: dict[type, Callable[[Any], Iterable[Any]]] = {
            Need: lambda m: self.custody.on_need(m, self.now),
            Release: lambda m: self.custody.on_release(m, self.now),
            Wanted: lambda m: self.custody.on_wanted(m.unit, self.now, m.urgency, m.due, m.there),
            Unwanted: lambda m: self.custody.on_unwanted(m.unit, self.now),
        }

    def jobs(self, unit: str, count: int) -> list[Job]:
        first = self._numbers
        self._numbers += count
        return [
            Job(
                f"j{n}",
                f"j{n}",
                unit,
                COST,
                ServiceClass.STANDARD,
                arrived=self.now,
                due=self.now + 2,
                max_batch_jobs=BATCH,
            )
            for n in range(first, first + count)
        ]

    def submit(self, jobs: Iterable[Job]) -> None:
        """Each is a request of its own."""
        for job in jobs:
            assert self.dispatch.refusal((job,), self.now) is None
            if effects := self.dispatch.on_enqueue((job,), self.now):
                self._settle(effects)

    def wake(self) -> None:
        """The slot waits for company, but not for ever."""
        while not self.running:
            self.now = max(self.now, self.dispatch.wake_at)
            self._settle(self.dispatch.on_wake(self.now))

    def ended(self) -> Finished:
        """What a runner says of the batch that runs."""
        run = self.running.popleft()
        outcomes = tuple(Outcome(job.id, output=job.id) for job in run.jobs)
        return Finished(run.id, run.lease, outcomes, SECONDS)

    def finish(self, finished: Finished) -> None:
        """The slot takes the next batch."""
        self._settle(self.dispatch.on_finished(finished, self.now))
        self._settle(self.dispatch.on_idle(self.slot, self.now))

    def _settle(self, effects: Iterable[Any]) -> None:
        """Until neither core has anything to say to the other."""
        waiting = deque(effects)
        while waiting:
            effect = waiting.popleft()
            perform = self._perform.get(type(effect))
            if perform is not None:
                waiting.extend(self._answered(perform(effect)))
            elif isinstance(effect, Run):
                self.running.append(effect)
            else:
                assert isinstance(effect, Done), effect

    def _answered(self, effects: Iterable[Any]) -> Iterable[Any]:
        """What the batcher does with what the memory manager said."""
        for effect in effects:
            handler = getattr(self.dispatch, HANDLERS[type(effect).__name__])
            yield from handler(effect, self.now)


HANDLERS = {"Granted": "on_granted", "Denied": "on_denied", "Ready": "on_ready"}


def core(units: int, backlog: int, requests: int, batch: int = BATCH) -> float:
    """Seconds of CPU a request; callers come in groups of `batch`."""
    cores = Cores(units)
    groups = 1 + backlog // batch
    cores._settle(cores.dispatch.on_idle(cores.slot, cores.now))
    for group in range(groups):
        cores.submit(cores.jobs(cores.names[group % units], batch))
    turn, best = groups, float("inf")
    for _ in range(ROUNDS):
        done, spent = 0, 0.0
        while done < requests:
            cores.now += SECONDS
            jobs = cores.jobs(cores.names[turn % units], batch)
            turn += 1
            began = time.process_time()
            cores.wake()
            spent += time.process_time() - began
            finished = cores.ended()
            ended = len(finished.outcomes)
            began = time.process_time()
            cores.finish(finished)
            cores.submit(jobs[:ended])
            spent += time.process_time() - began
            done += ended
        best = min(best, spent / done)
    return best


async def actors(units: int, backlog: int, requests: int, batch: int = BATCH) -> float:
    """The same through the actors."""
    names = [f"m{n}" for n in range(units)]
    options = {"weights_bytes": MIB, "workspace_per_cost": 1.0, "seconds_per_batch": SECONDS}
    entries = [
        model(name, ("score",), outputs=[], dims={}, limits={"max_batch_jobs": BATCH}, options=options)
        for name in names
    ]
    limits: dict[str, Any] = dict.fromkeys(
        ("max_waiting_jobs", "max_model_jobs", "preparation_backlog"), 100_000
    )
    async with engine(catalog(*entries), **limits) as opened:
        for name in names:
            await opened.load(name)
        calls = [
            Request("q", Task.SCORE, name, (Item(text="w " * COST),), ScoreOptions(query=Item(text="q")))
            for name in names
        ]
        marks = await _callers(opened, calls, 1 + backlog // batch, batch, requests)
        return min(later - earlier for earlier, later in itertools.pairwise(marks)) / requests


async def _callers(
    opened: Engine, calls: list[Request], groups: int, batch: int, requests: int
) -> list[float]:
    """CPU time after each so many requests, the callers all being there from before the first mark."""
    marks, done = list[float](), -groups * batch

    async def caller(group: int) -> None:
        nonlocal done
        for turn in itertools.count(group):
            await opened.submit(calls[turn % len(calls)])
            done += 1
            if done >= 0 and done % requests == 0:
                marks.append(time.process_time())
                if len(marks) > ROUNDS:
                    tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for group in range(groups):
            for _ in range(batch):
                tasks.start_soon(caller, group)
            await checkpoint()  # a mailbox takes 10,000 asks unread
    return marks[: ROUNDS + 1]


def measure(units: Iterable[int], backlogs: Iterable[int], requests: int) -> list[Cell]:
    cells = []
    for count in units:
        for backlog in backlogs:
            cells += _cell(count, backlog, backlog, requests, BATCH)
    return [*cells, *_cell(1, -1, 0, requests // 4, 1)]


def _cell(units: int, label: int, backlog: int, requests: int, batch: int) -> list[Cell]:
    gc.collect()
    gc.freeze()
    usual = gc.get_threshold()
    gc.set_threshold(*GARBAGE)  # as the server does once it is up
    try:
        loop = {"loop_factory": VirtualTimeLoop}
        costs = {
            "cores": core(units, backlog, requests, batch),
            "actors": anyio.run(actors, units, backlog, requests, batch, backend_options=loop),
        }
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
    return [Cell(level, units, label, 1e6 * cost) for level, cost in costs.items()]


def missed(cells: Iterable[Cell]) -> list[str]:
    """Which objectives, in words."""
    told, by_place = [], {(c.level, c.units, c.backlog): c.microseconds for c in cells if c.backlog >= 0}
    for (level, units, backlog), seen in by_place.items():
        goal = CORE_GOAL if level == "cores" else ACTOR_GOAL
        where = f"{level}, {units} units, backlog {backlog:,}"
        if seen > goal:
            told.append(f"{where}: {seen:.1f} us (goal {goal:.0f})")
        least = min(v for (k, u, _), v in by_place.items() if (k, u) == (level, units))
        if level == "cores" and seen > FLAT * least:
            told.append(f"{where}: {seen / least:.1f} times its least backlog (goal {FLAT:.0f})")
    return told


def show(cells: list[Cell]) -> str:
    seen = {(c.level, c.units, c.backlog): c.microseconds for c in cells}
    rows = [
        [f"{c.units} units, backlog {c.backlog:,}" if c.backlog >= 0 else "one caller alone"]
        + [f"{seen[level, c.units, c.backlog]:.1f}" for level in ("cores", "actors")]
        for c in cells
        if c.level == "cores"
    ]
    return table(
        ["us of CPU a request", f"cores (goal {CORE_GOAL:.0f})", f"actors (goal {ACTOR_GOAL:.0f})"], rows
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=3_000, help="for each figure and round")
    parser.add_argument("--quick", action="store_true", help="one small corner, to see that it runs")
    chosen = parser.parse_args(arguments)
    units, backlogs = ((1, 12), (0, 1_000)) if chosen.quick else (UNITS, BACKLOGS)
    cells = measure(units, backlogs, 150 if chosen.quick else chosen.requests)
    print(show(cells))
    return verdict(missed(cells))


if __name__ == "__main__":
    sys.exit(main())
