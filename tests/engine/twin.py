"""The two pure cores wired to each other and to a heap of events: no actors, no loop, no clock.

What the planner will do with them, at tens of thousands of batches a second; the books are checked after
every message.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from engine.conversation import (
    Denied,
    Finished,
    Granted,
    JobRef,
    Left,
    Lost,
    Need,
    Outcome,
    Progress,
    Ready,
    Release,
    Run,
    Spread,
    TooLarge,
    Unavailable,
    Unwanted,
    Wanted,
)
from engine.errors import EngineError, Failure
from engine.events import ResidencyChanged
from engine.memory.custody import Custody
from engine.memory.effects import Abandon, Answer, BeginLoad, BeginUnload, DropHost, Inspect
from engine.memory.footprint import Footprint
from engine.memory.holdings import Holdings
from engine.memory.host_tier import HostTier
from engine.memory.ledger import Ledger, Line
from engine.memory.residency import Residency
from engine.memory.rules import MemoryRules
from engine.requests import ServiceClass
from engine.scheduling.dispatch import Dispatch
from engine.scheduling.effects import Done, Dropped, Failed
from engine.scheduling.lanes import Job
from engine.scheduling.rules import SchedulingRules
from engine.units import UnitFacts

BROKEN = Failure("LoadFailed", "no such weights")
EXHAUSTED = Failure("ResourceExhausted", "no memory")


@dataclass
class Sim:
    """A unit that computes nothing."""

    unit: str
    weights: int = 100
    load_seconds: float = 0.5
    restore_seconds: float = 0.05
    per_batch: float = 0.002
    per_cost: float = 0.0001
    workspace_per_cost: float = 0.01
    kv_per_token: int = 0
    inspect_seconds: float = 0.0
    fails: Callable[[], bool] = lambda: False
    exhausts: Callable[[str], bool] = lambda job: False
    """Whether memory runs out on this job now, alone."""
    facts: dict[str, Any] = field(default_factory=dict)
    adapts: str | None = None
    """The unit that it is an adapter of."""

    def seconds(self, cost: int) -> float:
        return self.per_batch + cost * self.per_cost

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.weights, 0, self.workspace_per_cost, self.kv_per_token)


@dataclass(frozen=True)
class Ran:
    """One batch, or one quantum."""

    began: float
    seconds: float
    unit: str
    slot: str
    cost: int
    jobs: tuple[str, ...]


class Twin:
    def __init__(
        self,
        *sims: Sim,
        memory: int = 10_000,
        slots: int = 1,
        devices: Iterable[str] = ("a",),
        rules: SchedulingRules | None = None,
        memory_rules: MemoryRules | None = None,
        headroom: float = 0.0,
        host_memory: int = 0,
    ) -> None:
        devices = list(devices)
        self.now = 0.0
        self.sims = {sim.unit: sim for sim in sims}
        known = {
            s.unit: UnitFacts(
                s.unit, s.unit, ("simulated",), adapts=s.adapts, **({"max_batch_cost": 2048} | s.facts)
            )
            for s in sims
        }
        self.slots = {f"{device}/{n}": device for device in devices for n in range(slots)}
        self.abandoned: set[str] = set()
        self.dispatch = Dispatch(
            known.__getitem__,
            rules or SchedulingRules(),
            self.slots,
            dict.fromkeys(devices, "simulated"),
            lambda job: job.id not in self.abandoned,
        )
        self.held = Holdings(
            known.__getitem__,
            {device: Ledger(memory, headroom) for device in devices},
            dict.fromkeys(devices, "simulated"),
            dict.fromkeys(devices, slots),
            HostTier(host_memory),
            devices if host_memory else (),
        )
        self.custody = Custody(self.held, memory_rules or MemoryRules())
        self.ran: list[Ran] = []
        self.jobs: dict[str, Job] = {}
        self.outcomes: dict[str, list[tuple[str, float]]] = {}
        self.started: dict[str, float] = {}
        self.answers: dict[int, list[Answer]] = {}
        self.changes: list[ResidencyChanged] = []
        self.written: Counter[str] = Counter()  # tokens of each sequence
        self.attempts: Counter[str] = Counter()
        self.wakes = 0
        self._runs: dict[int, Run] = {}
        self._gone: set[str] = set()  # devices that were lost
        self._aside: set[str] = set()  # whose weights are in host memory
        self._busy: set[str] = set()
        self._then: dict[str, Callable[[], object]] = {}
        self._asks = itertools.count(1)
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._queue: deque[Callable[[], None]] = deque()
        for slot in self.slots:
            self.to_dispatch("on_idle", slot)

    # What a client, an operator or the world does.

    def submit(
        self,
        unit: str,
        cost: int = 48,
        service_class: ServiceClass = ServiceClass.STANDARD,
        deadline: float = math.inf,
        kv_tokens: int = 0,
        **fields: Any,
    ) -> str:
        number = len(self.jobs)
        target = self.dispatch.rules.targets[service_class]
        job = Job(
            id=f"j{number}",
            request=f"j{number}",
            unit=unit,
            cost=cost,
            service_class=service_class,
            arrived=self.now,
            due=min(deadline, self.now + target),
            deadline=deadline,
            kv_tokens=kv_tokens,
            **fields,
        )
        self.jobs[job.id], self.outcomes[job.id] = job, []
        self.to_dispatch("on_enqueue", [job])
        return job.id

    def cancel(self, job: str) -> None:
        self.abandoned.add(job)

    def lose(self, device: str) -> None:
        """The device fails: what runs there comes to no end, nor does anything that is begun there."""
        self._gone.add(device)
        for run in [run for run in self._runs.values() if run.lease.device == device]:
            self._fail(run)

    def clients(self, unit: str, count: int, until: float, **job: Any) -> None:
        """So many callers who each send the next job when the last one has ended."""

        def send() -> None:
            if self.now < until:
                self._then[self.submit(unit, **job)] = send

        for _ in range(count):
            self.at(self.now, send)

    def ask(self, what: str, unit: str, **fields: Any) -> int:
        """`load`, `unload`, `pin` or `unpin`."""
        ask = next(self._asks)
        self.answers[ask] = []
        self.to_custody(f"on_{what}", unit, ask, **fields)
        return ask

    def to_dispatch(self, handler: str, *message: Any) -> None:
        self._queue.append(lambda: self._dispatched(getattr(self.dispatch, handler)(*message, self.now)))

    def to_custody(self, handler: str, *message: Any, **fields: Any) -> None:
        self._queue.append(
            lambda: self._managed(getattr(self.custody, handler)(*message, now=self.now, **fields))
        )

    def at(self, when: float, do: Callable[[], object]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), lambda: (do(), None)[1]))

    # Time.

    def run(self, until: float = math.inf) -> None:
        """Deliver everything up to `until`; with inf, until nothing can happen any more."""
        self._settle()
        for _ in range(1_000_000):
            wake = min(self.custody.wake_at, self.dispatch.wake_at)
            due = min(self._events[0][0] if self._events else math.inf, wake)
            if due > until or due == math.inf:
                self.now = until if until < math.inf else self.now
                return
            assert due >= self.now, "the past was asked for"
            self.now = due
            if self.dispatch.wake_at <= due:
                self.wakes += 1
                self.to_dispatch("on_wake")
            elif wake <= due:
                self.to_custody("on_wake")
            else:
                heapq.heappop(self._events)[2]()
            self._settle()
        raise AssertionError("it never comes to rest")

    def _settle(self) -> None:
        for _ in range(20_000):
            if not self._queue:
                return
            self._queue.popleft()()
            self.check()
        raise AssertionError("livelock: messages go back and forth and no time passes")

    def _dispatched(self, effects: Iterable[Any]) -> None:
        for effect in effects:
            match effect:
                case Run():
                    self._start(effect)
                case Need():
                    self.to_custody("on_need", effect)
                case Release():
                    self.to_custody("on_release", effect)
                case Wanted(unit, urgency, due, there):
                    self.to_custody("on_wanted", unit, urgency=urgency, due=due, there=there)
                case Unwanted(unit):
                    self.to_custody("on_unwanted", unit)
                case Spread(unit, device):
                    self.to_custody("on_spread", unit, device)
                case Lost(device, reason):
                    self.to_custody("on_lost", device, reason)
                case Done(outcomes):
                    self._ended((o.job, o.failure.kind if o.failure else "ok") for o in outcomes)
                case Dropped(jobs, reason):
                    self._ended((job.id, reason) for job in jobs)
                case Failed(jobs, failure):
                    self._ended((job.id, failure.kind) for job in jobs)
                case _:
                    raise AssertionError(effect)

    def _managed(self, effects: Iterable[Any]) -> None:
        for effect in effects:
            match effect:
                case Inspect(unit):
                    sim = self.sims[unit]
                    self.at(
                        self.now + sim.inspect_seconds,
                        lambda s=sim: self.to_custody("on_inspected", s.unit, s.footprint),
                    )
                case BeginLoad(unit, device):
                    self._load(unit, device, effect.from_host)
                case BeginUnload(unit, device, keep):
                    self._aside |= {unit} if keep else set()
                    kept = self.sims[unit].weights if keep else 0
                    self.to_custody("on_unloaded", unit, device, kept_bytes=kept)
                case DropHost(unit):
                    self._aside.discard(unit)
                case Abandon():
                    pass
                case Answer():
                    self.answers[effect.ask].append(effect)
                case ResidencyChanged():
                    self.changes.append(effect)
                case Granted():
                    self.to_dispatch("on_granted", effect)
                case Denied():
                    self.to_dispatch("on_denied", effect)
                case TooLarge():
                    self.to_dispatch("on_too_large", effect)
                case Ready():
                    self.to_dispatch("on_ready", effect)
                case Left(unit, device):
                    self.to_dispatch("on_left", unit, device)
                case Unavailable():
                    self.to_dispatch("on_unavailable", effect)
                case _:
                    raise AssertionError(effect)

    def _load(self, unit: str, device: str, from_host: bool) -> None:
        sim = self.sims[unit]
        assert not from_host or unit in self._aside, "it is not in host memory"
        took = sim.restore_seconds if from_host else sim.load_seconds
        if sim.fails():
            self.at(self.now + took, lambda: self.to_custody("on_load_failed", unit, device, BROKEN))
        else:
            self.at(self.now + took, lambda: self.to_custody("on_loaded", unit, device, took))

    def _start(self, run: Run) -> None:
        lease = run.lease
        resident = self.held.residents[lease.unit, lease.device]
        assert resident.state is Residency.READY, "a batch runs on what is not there"
        cost = sum(job.cost for job in run.jobs)
        assert cost <= lease.max_cost, "a batch exceeds its lease"
        assert not any(job.id in self.abandoned for job in run.jobs), "a dead job runs"
        assert not any(self.jobs[job.id].deadline <= self.now for job in run.jobs), "a late job runs"
        read_with = {a for job in (*run.jobs, *run.running) for a in self.jobs[_id(job)].adapters}
        assert read_with <= {*lease.adapters}, "a batch is read with what it has no lease on"
        for adapter in read_with:
            assert self.held.residents[adapter, lease.device].state is Residency.READY
        for job in run.jobs:
            self.attempts[job.id] += 1
            assert self.attempts[job.id] <= run.attempt <= 2, "a job runs too often"
            self.started[job.id] = self.now
        assert lease.slot not in self._busy, "a slot runs two batches"
        self._busy.add(lease.slot)
        seconds = self.sims[lease.unit].seconds(cost + len(run.running))
        self.ran.append(Ran(self.now, seconds, lease.unit, lease.slot, cost, tuple(j.id for j in run.jobs)))
        self._runs[run.id] = run
        if lease.device in self._gone:
            self._fail(run)
        else:
            self.at(self.now + seconds, lambda: self._finish(run, seconds))

    def _fail(self, run: Run) -> None:
        """No Idle comes from that slot any more."""
        del self._runs[run.id]
        self._busy.remove(run.lease.slot)
        self.to_dispatch("on_finished", Finished(run.id, run.lease, (), 0.0, lost=True))

    def _finish(self, run: Run, seconds: float) -> None:
        if self._runs.pop(run.id, None) is None:
            return  # its device was lost meanwhile
        self._busy.remove(run.lease.slot)
        exhausts = self.sims[run.lease.unit].exhausts
        outcomes = [
            Outcome(job.id, failure=EXHAUSTED) if exhausts(job.id) else Outcome(job.id, output=job.id)
            for job in run.jobs
        ]
        progress: list[Progress] = []
        if run.generative:
            outcomes = []
            for job in sorted({*run.running, *(job.id for job in run.jobs)} - set(run.leaving)):
                self.written[job] += 1
                progress.append(Progress(job, "word", 1))
                if self.written[job] >= self.jobs[job].kv_tokens - self.jobs[job].cost:
                    outcomes.append(Outcome(job, output=job))
        finished = Finished(
            run.id,
            run.lease,
            tuple(outcomes),
            seconds,
            tuple(progress),
            out_of_memory=any(outcome.failure for outcome in outcomes),
        )
        self.to_dispatch("on_finished", finished)
        self.to_dispatch("on_idle", run.lease.slot)

    def _ended(self, jobs: Iterable[tuple[str, str]]) -> None:
        for job, outcome in jobs:
            self.outcomes[job].append((outcome, self.now))
            assert len(self.outcomes[job]) == 1, f"{job} ended twice: {self.outcomes[job]}"
            if then := self._then.pop(job, None):
                self.at(self.now, then)

    # What a test looks at.

    def outcome(self, job: str) -> str | None:
        return self.outcomes[job][0][0] if self.outcomes[job] else None

    def latency(self, job: str) -> float:
        return self.outcomes[job][0][1] - self.jobs[job].arrived

    def error(self, ask: int) -> EngineError | None:
        (answer,) = self.answers[ask]
        return answer.error

    def state(self, unit: str, device: str = "a") -> Residency:
        resident = self.held.residents.get((unit, device))
        return resident.state if resident else Residency.ABSENT

    def batches(self, unit: str | None = None) -> list[Ran]:
        return [r for r in self.ran if unit in (None, r.unit)]

    def check(self) -> None:
        """What always holds."""
        for device, ledger in self.held.ledgers.items():
            ledger.check()
            for line, owner, size in ledger:
                if line is Line.WEIGHTS:
                    resident = self.held.residents[owner, device]
                    assert resident.resident, f"{owner} holds {size} bytes and is {resident.state}"
        for resident in self.held.residents.values():
            if resident.pinned:
                assert resident.state is Residency.READY and not resident.yielding, "a pin leaves"
            if resident.busy:
                assert resident.state is Residency.READY, "a lease on what is not there"
            if resident.base is not None and resident.resident:
                assert resident.base.state is Residency.READY, "an adapter without its base"

    def check_at_rest(self) -> None:
        """What holds once nothing can happen any more."""
        unfinished = {job: self.jobs[job] for job, outcomes in self.outcomes.items() if not outcomes}
        assert not unfinished, f"{len(unfinished)} jobs have no outcome: {list(unfinished.values())[:3]}"
        assert all(len(answers) == 1 for answers in self.answers.values()), self.answers
        assert not self.held.claims and not self.held.wanted
        assert {kept.unit for kept in self.held.host} == self._aside
        assert not self.dispatch.running and not self.dispatch.lanes
        for ledger in self.held.ledgers.values():
            lines = ledger.lines()
            assert lines[Line.WORKSPACE] == 0 and lines[Line.KV] == 0
        for resident in self.held.residents.values():
            assert not resident.leases and not resident.yielding
            assert resident.state in (Residency.ABSENT, Residency.READY, Residency.FAILED)


def _id(job: JobRef | str) -> str:
    return job if isinstance(job, str) else job.id
