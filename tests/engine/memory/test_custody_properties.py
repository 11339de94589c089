"""Whatever happens in whatever order: the books balance, pins hold, and everybody is told in the end."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.conversation import Denied, Granted, Lease, Left, Need, Ready, Release, TooLarge, Unavailable
from engine.errors import Failure
from engine.events import ResidencyChanged
from engine.memory.custody import Answer, BeginLoad, BeginUnload, Custody, Inspect
from engine.memory.footprint import Footprint
from engine.memory.holdings import Holdings
from engine.memory.ledger import Ledger, Line
from engine.memory.residency import Residency
from engine.memory.rules import EvictionPolicy, MemoryRules
from engine.units import UnitFacts

UNITS = ("a", "b", "c", "d", "g")  # `g` generates
DEVICES = ("x", "y")
BROKEN = Failure("LoadFailed", "no such weights")
unit = st.sampled_from(UNITS)
device = st.sampled_from(DEVICES)


class Custodian(RuleBasedStateMachine):
    @initialize(
        weights=st.tuples(*[st.integers(50, 700)] * len(UNITS)),
        policy=st.sampled_from(EvictionPolicy),
        loads_at_once=st.integers(1, 2),
        idle=st.sampled_from([None, 3.0]),
    )
    def open(self, weights, policy, loads_at_once, idle):
        def facts(name):
            return UnitFacts(name, name, ("simulated",), generative=name == "g", max_batch_cost=80)

        ledgers = {d: Ledger(1000, 0.1) for d in DEVICES}
        self.held = Holdings(facts, ledgers, dict.fromkeys(DEVICES, "simulated"))
        rules = MemoryRules(policy=policy, loads_at_once=loads_at_once, idle_unload=idle)
        self.custody = Custody(self.held, rules)
        self.footprints = {
            u: Footprint(w, 5, 1.0, 1 if u == "g" else 0) for u, w in zip(UNITS, weights, strict=True)
        }
        self.now = 0.0
        self.inspecting: list[str] = []
        self.loading: list[tuple[str, str]] = []
        self.leaving: list[tuple[str, str]] = []
        self.leases: list[Lease] = []
        self.sequences: dict[str, int] = {}  # tokens that `g`'s hold, by device
        self.wanted: set[str] = set()
        self.denied: set[str] = set()
        self.failed: set[str] = set()  # told that they cannot be had
        self.warm: set[tuple[str, str]] = set()  # where the batcher believes that leases can be had
        self.asks: dict[int, list[Answer]] = {}

    def does(self, handler, *message):
        self.perform(getattr(self.custody, f"on_{handler}")(*message, self.now))

    def perform(self, effects):
        for effect in effects:
            match effect:
                case Inspect(name):
                    assert name not in self.inspecting
                    self.inspecting.append(name)
                case BeginLoad(name, where, weights):
                    assert self.held.ledgers[where].held(Line.WEIGHTS, name) == weights
                    assert (name, where) not in self.loading
                    self.loading.append((name, where))
                case BeginUnload(name, where):
                    resident = self.held.residents[name, where]
                    assert not resident.pinned and not resident.leases and not resident.kv_tokens
                    self.leaving.append((name, where))
                case Answer(ask):
                    self.asks[ask].append(effect)
                    assert len(self.asks[ask]) == 1
                case Granted(lease):
                    resident = self.held.residents[lease.unit, lease.device]
                    assert resident.state is Residency.READY
                    self.leases.append(lease)
                case Denied(_, name, where, _):
                    self.denied.add(name)
                    self.warm.discard((name, where))
                case Ready(name, where):
                    self.denied.discard(name)
                    self.warm.add((name, where))
                case Unavailable(name, _) | TooLarge(_, name, _, _, _):
                    self.denied.discard(name)
                    self.failed.add(name)
                case Left(name, where):
                    self.warm.discard((name, where))
                case ResidencyChanged():
                    pass
                case _:
                    raise AssertionError(effect)
        for key in self.warm:
            assert self.held.residents[key].lends, f"{key} gives no leases and the batcher was not told"

    @rule(name=unit)
    def want(self, name):
        if name not in self.wanted:
            self.failed.discard(name)
            self.wanted.add(name)
            self.does("wanted", name)

    @rule(name=unit)
    def unwant(self, name):
        if name in self.wanted and not self.sequences.get(name):
            self.wanted.discard(name)
            self.denied.discard(name)
            self.does("unwanted", name)

    @rule(name=unit, where=device, cost=st.integers(1, 400), more=st.integers(0, 200), kv=st.integers(1, 400))
    def need(self, name, where, cost, more, kv):
        if name not in self.wanted:
            return
        if name != "g":
            self.does("need", Need(name, where, f"{where}/0", cost, cost + more))
        elif not any(lease.unit == "g" for lease in self.leases):
            self.generate(where, cost, kv)

    def generate(self, where, cost, kv):
        """A quantum: some run, and more may join; all on one device."""
        if self.sequences:
            ((where, floor),) = self.sequences.items()
            self.does("need", Need("g", where, f"{where}/0", 0, cost, floor, floor, floor + kv))
        else:
            self.does("need", Need("g", where, f"{where}/0", cost, cost, 0, kv, kv))

    @precondition(lambda self: self.leases)
    @rule(pick=st.integers(0, 99), oom=st.integers(0, 9), keep=st.floats(0, 1))
    def release(self, pick, oom, keep):
        lease = self.leases.pop(pick % len(self.leases))
        tokens = int(self.held.residents[lease.unit, lease.device].kv_tokens * keep)
        if lease.unit == "g":
            self.sequences = {lease.device: tokens} if tokens else {}
        self.does("release", Release(lease, tokens, 0.1, oom == 0))

    @precondition(lambda self: self.inspecting)
    @rule(works=st.integers(0, 4))
    def inspect(self, works):
        name = self.inspecting.pop(0)
        if works:
            self.does("inspected", name, self.footprints[name])
        else:
            self.does("inspect_failed", name, BROKEN)

    @precondition(lambda self: self.loading)
    @rule(pick=st.integers(0, 9), works=st.integers(0, 3))
    def load_ends(self, pick, works):
        name, where = self.loading.pop(pick % len(self.loading))
        if works:
            self.does("loaded", name, where, 0.5)
        else:
            self.does("load_failed", name, where, BROKEN)

    @precondition(lambda self: self.leaving)
    @rule()
    def unload_ends(self):
        self.does("unloaded", *self.leaving.pop(0))

    @rule(name=unit, what=st.sampled_from(["load", "unload", "pin", "pin", "unpin"]))
    def ask(self, name, what):
        number = len(self.asks)
        self.asks[number] = []
        self.does(what, name, number)

    @rule(where=device, size=st.sampled_from([0, 0, 100, 600, 950]))
    def others(self, where, size):
        self.does("observed", where, size)

    @rule(seconds=st.sampled_from([0.01, 0.5, 3.0, 11.0]))
    def wait(self, seconds):
        until = self.now + seconds
        while self.custody.wake_at <= until:
            assert self.custody.wake_at >= self.now
            self.now = self.custody.wake_at
            self.does("wake")
            assert self.custody.wake_at > self.now, "it would wake again and again at the same time"
        self.now = until

    @invariant()
    def the_books_balance(self):
        if not hasattr(self, "held"):
            return
        for where, ledger in self.held.ledgers.items():
            ledger.check()
            lines = ledger.lines()
            here = [r for (_, d), r in self.held.residents.items() if d == where]
            assert lines[Line.WEIGHTS] == sum(
                ledger.held(Line.WEIGHTS, r.unit) for r in here if r.resident
            ), "bytes are held for what is not there"
            leased = {str(lease.id) for lease in self.leases if lease.device == where}
            assert leased == {owner for line, owner, _ in ledger if line is Line.WORKSPACE}
            assert lines[Line.KV] == sum(r.kv_bytes for r in here)
            for resident in here:
                assert resident.leases == sum(
                    lease.unit == resident.unit and lease.device == where for lease in self.leases
                )
                if resident.pinned:
                    assert resident.state is Residency.READY and not resident.yielding, "a pin leaves"
                    assert self.held.pins[resident.unit] == where
                assert resident.state is not Residency.LOADING or (resident.unit, where) in self.loading
                assert resident.state is not Residency.LEAVING or (resident.unit, where) in self.leaving

    def teardown(self):
        """When the world goes on to answer, all who wait are told."""
        if not hasattr(self, "held"):
            return
        for where in DEVICES:
            self.others(where, 0)
        for _ in range(200):
            while self.leases:
                self.release(0, 1, 0.0)
            while self.inspecting:
                self.inspect(1)
            while self.loading:
                self.load_ends(0, 1)
            while self.leaving:
                self.unload_ends()
            served = {name for name, _ in self.warm} | self.failed
            if self.sequences:
                self.generate("", 1, 1)
            elif done := sorted(self.wanted & served - self.denied):
                self.unwant(done[0])  # it had its turn, and no work is left
            elif self.custody.wake_at < math.inf:
                self.wait(self.custody.wake_at - self.now)
            if self.at_rest() and not self.wanted & ({name for name, _ in self.warm} | self.failed):
                break
            self.the_books_balance()
        assert self.at_rest(), "it never comes to rest"
        unanswered = [ask for ask, answers in self.asks.items() if len(answers) != 1]
        assert not unanswered, f"asks {unanswered} were never answered"
        assert not self.wanted, f"{self.wanted} wait and nothing happens; claims: {self.custody.claims}"
        for pinned, where in self.held.pins.items():
            assert self.held.residents[pinned, where].state is Residency.READY

    def at_rest(self):
        moving = self.leases or self.inspecting or self.loading or self.leaving or self.sequences
        return not moving and self.custody.wake_at == math.inf


TestCustodian = Custodian.TestCase
TestCustodian.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.reuse, Phase.generate, Phase.shrink),
)
