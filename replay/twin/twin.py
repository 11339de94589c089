"""The twin: traffic in, what became of every request out. The same seed gives the same run.

It drives the engine's own `Dispatch` and `Custody`, with the engine's own order of messages; only time and
the device's work are made up, and those from readings. What it leaves out: the edge, preparation's queue,
devices that fail, memory that runs out, the time table of `preheat` and `unload`.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np

from engine.requests import ServiceClass
from engine.scheduling.companions import Companions
from engine.scheduling.lanes import Job
from engine.units import base
from replay.answers import Answers
from replay.trace import NO_SESSION
from replay.twin.batcher import Batcher
from replay.twin.clock import Clock
from replay.twin.company import Company
from replay.twin.going import Going
from replay.twin.memory_manager import MemoryManager
from replay.twin.results import Results
from replay.twin.server import Server
from replay.twin.sharing import Sharing
from replay.twin.traffic import Traffic
from replay.twin.tripwire import Tripwire

BEGIN = 1024.0
"""When traffic begins, at the earliest: pins and what is resident are loaded before."""


class Twin:
    def __init__(
        self,
        server: Server,
        traffic: Traffic,
        seed: int = 0,
        *,
        keep: bool = False,
        tripwire: Tripwire | None = None,
    ) -> None:
        """`keep`: every batch is remembered, not only counted. With a tripwire the run may end early."""
        self._server = server
        self._traffic = traffic
        self._clock = clock = Clock()
        facts = {name: unit.facts for name, unit in server.units.items()}
        company, sharing = Company(), {card.name: Sharing(clock, card, seed) for card in server.cards}
        self._memory = MemoryManager(server, facts, clock, company, sharing, seed)
        told = self._ended, self._again
        self._batcher = Batcher(server, facts, clock, company, sharing, self._memory, seed, keep, *told)
        self._memory.batcher = self._batcher
        clock.seat(self._memory.seat, self._batcher.seat)
        self._tripwire = tripwire
        self._companions = Companions()
        self._luck = random.Random(f"{seed}/preparation")
        self._prepared = 0.0
        """When what was prepared last goes into the queue."""
        self._going: list[Going] = []
        self._begin = BEGIN
        self._arrived: list[float] = []
        trace = traffic.trace
        self._shape, self._session = trace.input_size.tolist(), trace.session.tolist()
        self._class = [ServiceClass(c) for c in trace.service_class.tolist()]
        self._number = 0

    def run(self) -> Results:
        """All of the traffic, to the end of its last request."""
        clock, server = self._clock, self._server
        for unit in server.pins:
            self._memory.pin(unit)
        clock.run(BEGIN)
        for unit in server.resident:
            self._memory.load(unit)
            clock.run(clock.now + 60.0)
        self._begin = max(BEGIN, math.ceil(clock.now))
        self._arrived = (self._traffic.trace.arrived + self._begin).tolist()
        clock.at(self._arrived[0], self._arrive, 0)
        clock.run()
        return self._results()

    def _arrive(self, index: int) -> None:
        if index + 1 < len(self._arrived):
            self._clock.at(self._arrived[index + 1], self._arrive, index + 1)
        shape = self._traffic.shapes[self._shape[index]]
        now = self._clock.now
        going = Going(index, shape.unit, now, now + shape.deadline, shape.answer_tokens)
        self._going.append(going)
        if self._session[index] != NO_SESSION:
            self._expect(f"s{self._session[index]}", shape.unit, now)
        self._prepare(going)

    def _expect(self, session: str, unit: str, now: float) -> None:
        for name in self._companions.on_request(session, base(unit), now):
            self._memory.seat.tell(self._memory.custody.on_expected, name)

    def _again(self, going: Going) -> None:
        """Another unit is to answer: it is prepared for that one."""
        self._clock.soon(partial(self._prepare, going))

    def _prepare(self, going: Going) -> None:
        """Into the queue, after as long as preparing one such took; now it has its number."""
        prepared, now = self._server.units[going.unit].prepare, self._clock.now
        seen = prepared[min(len(self._batcher.dispatch.running), len(prepared) - 1)]
        # What is prepared at once comes out at once, and may then share a batch.
        if self._prepared <= now or self._luck.random() >= self._server.together:
            self._prepared = now + (seen[int(self._luck.random() * len(seen))] if len(seen) > 1 else seen[0])
        if self._prepared > now:
            self._clock.at(self._prepared, self._enqueue, going, now)
        else:
            self._enqueue(going, now)

    def _enqueue(self, going: Going, received: float) -> None:
        shape, unit = self._traffic.shapes[self._shape[going.index]], self._server.units[going.unit]
        service_class = self._class[going.index]
        due = min(going.deadline, received + self._server.target(going.unit, service_class))
        self._number += 1
        number = f"r{self._number}"
        jobs = [
            Job(
                id=f"{number}/{place}",
                request=number,
                unit=going.unit,
                cost=min(cost, unit.max_cost),
                service_class=service_class,
                arrived=received,
                due=due,
                deadline=going.deadline,
                kv_tokens=cost + shape.most_tokens if unit.facts.generative else 0,
                max_batch_cost=unit.max_batch_cost,
                max_batch_jobs=unit.max_batch_jobs,
                principal=shape.principal,
            )
            for place, cost in enumerate(shape.costs)
        ]
        self._batcher.enqueue(going, jobs)

    def _ended(self, going: Going) -> None:
        if self._tripwire is None:
            return
        unit = self._traffic.shapes[self._shape[going.index]].unit
        latency = going.ended_at - going.received if going.answered else math.inf
        if self._tripwire.ended((unit, self._class[going.index]), going.received - self._begin, latency):
            self._clock.stopped = True

    def _results(self) -> Results:
        """Of the requests that came to an end: all, unless the run was stopped."""
        going = [each for each in self._going if each.ended]
        trace, shapes = self._traffic.trace, self._traffic.shapes
        names = tuple(dict.fromkeys(shape.unit for shape in shapes))
        number = {name: n for n, name in enumerate(names)}
        received = np.array([g.received for g in going])
        ended = np.array([g.ended_at for g in going])
        answered = np.array([g.answered for g in going])
        queued = np.array([g.queued_at for g in going])
        load = np.array([g.load_seconds for g in going])
        started = np.array([g.first_started if g.started else g.ended_at for g in going])
        finished = np.array([g.last_finished if g.started else g.ended_at for g in going])
        outcomes = tuple(dict.fromkeys(g.outcome for g in going))
        costs = np.array([sum(shape.costs) for shape in shapes], dtype=np.int64)
        index = np.array([g.index for g in going], dtype=np.int64)
        rows = trace.input_size[index]
        batcher, memory, begin = self._batcher, self._memory, self._begin
        answers = Answers(
            models=names,
            model=np.array([number[s.unit] for s in shapes], dtype=np.int32)[rows],
            service_class=trace.service_class[index],
            arrived=received - begin,
            latency=np.where(answered, ended - received, np.inf),
            prepare=np.maximum(0, queued - received),
            queue=np.maximum(0, started - queued - load),
            load=load,
            run=np.maximum(0, finished - started),
            outcomes=outcomes,
            outcome=np.array([outcomes.index(g.outcome) for g in going], dtype=np.int16),
            cold=np.array([g.cold for g in going]),
        )
        return Results(
            answers=answers,
            span=self._clock.now - begin,
            batches=batcher.batches,
            busy=batcher.busy,
            peaks=memory.peaks,
            changes=tuple([msgspec.structs.replace(c, at=c.at - begin) for c in memory.changes]),
            ran=tuple([replace(ran, began=ran.began - begin) for ran in batcher.ran]),
            extrapolated=dict(batcher.extrapolated),
            costs=costs[rows],
            notes=(*self._traffic.notes, *memory.refused),
        )


def simulate(server: Server, traffic: Traffic, seed: int = 0, *, keep: bool = False) -> Results:
    return Twin(server, traffic, seed, keep=keep).run()
