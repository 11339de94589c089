"""Whatever happens in whatever order: the books balance, pins hold, and everybody is told in the end."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.conversation import Denied, Granted, Lease, Left, Need, Ready, Release, TooLarge, Unavailable
from engine.errors import Failure
from engine.events import ResidencyChanged
from engine.memory.custody import Custody
from engine.memory.effects import Abandon, Answer, BeginLoad, BeginUnload, DropHost, Inspect
from engine.memory.footprint import Footprint
from engine.memory.holdings import Holdings
from engine.memory.host_tier import HostTier
from engine.memory.ledger import Ledger, Line
from engine.memory.residency import Residency
from engine.memory.rules import EvictionPolicy, MemoryRules
from engine.units import UnitFacts

UNITS = ("a", "b", "c", "d", "g")  # `g` generates
DEVICES = ("x", "y", "z")
KINDS = {"x": "simulated", "y": "simulated", "z": "cpu"}
TIERED = ("x", "y")
HOST_BYTES = 900
BROKEN = Failure("LoadFailed", "no such weights")
unit = st.sampled_from(UNITS)
device = st.integers(0, len(DEVICES) - 1)


class Custodian(RuleBasedStateMachine):
    @initialize(
        weights=st.tuples(*[st.integers(50, 700)] * len(UNITS)),
        policy=st.sampled_from(EvictionPolicy),
        loads_at_once=st.integers(1, 2),
        idle=st.sampled_from([None, 3.0]),
        own_idle=st.sampled_from([None, 1.0]),
        count=st.sampled_from([1, 1, 2, 3]),
        begun=st.lists(unit, unique=True, max_size=4),
        pinned=st.sampled_from([None, *UNITS]),
    )
    def open(self, weights, policy, loads_at_once, idle, own_idle, count, begun, pinned):
        def facts(name):
            kinds = ("simulated", "cpu") if name in "abg" else ("simulated",)
            own = own_idle if name == "c" else None
            return UnitFacts(name, name, kinds, generative=name == "g", max_batch_cost=80, idle_unload=own)

        self.devices = DEVICES[:count]
        ledgers = {d: Ledger(1000, 0.1) for d in self.devices}
        kinds = {d: KINDS[d] for d in self.devices}
        slots = dict.fromkeys(self.devices, 2)
        self.held = Holdings(facts, ledgers, kinds, slots, HostTier(HOST_BYTES), TIERED)
        rules = MemoryRules(policy=policy, loads_at_once=loads_at_once, idle_unload=idle)
        self.custody = Custody(self.held, rules)
        self.footprints = {
            u: Footprint(w, 5, 1.0, 1 if u == "g" else 0) for u, w in zip(UNITS, weights, strict=True)
        }
        self.now = 0.0
        self.inspecting: list[str] = []
        self.loading: list[tuple[str, str]] = []
        self.leaving: list[tuple[str, str, bool]] = []
        self.models: set[tuple[str, str]] = set()  # loaded, as the memory manager's actor has them
        self.aside: set[str] = set()  # in host memory, as it has them
        self.leases: list[Lease] = []
        self.sequences: dict[str, int] = {}  # tokens that `g`'s hold, by device
        self.wanted: set[str] = set()
        self.denied: set[str] = set()
        self.failed: set[str] = set()  # told that they cannot be had
        self.warm: set[tuple[str, str]] = set()  # where the batcher believes that leases can be had
        self.asks: dict[int, list[Answer]] = {}
        self.asked: dict[int, tuple[str, str]] = {}
        self.to_go: dict[int, set[tuple[str, str]]] = {}  # what was there when its unload was asked for
        self.promised: dict[str, str] = {}  # pins that were answered, and where they were then
        self.begin(begun, pinned)

    def begin(self, begun, pinned):
        """Some are there already when anything happens."""
        for name in begun:
            self.want(name)
            self.answer_everything()
            self.need(name, 0, 10, 0, 10)
        if pinned:
            self.ask(pinned, "pin")
            while self.inspecting or self.loading:
                self.inspect(1) if self.inspecting else self.load_ends(0, 1)

    def does(self, handler, *message, **fields):
        self.perform(getattr(self.custody, f"on_{handler}")(*message, now=self.now, **fields))

    def perform(self, effects):
        for effect in effects:
            match effect:
                case Granted() | Denied() | Ready() | Unavailable() | TooLarge() | Left():
                    self.tell_batcher(effect)
                case Answer(ask):
                    self.answered(ask, effect)
                case Inspect(name):
                    assert name not in self.inspecting
                    self.inspecting.append(name)
                case ResidencyChanged():
                    pass
                case _:
                    self.move(effect)
        for key in self.warm:
            assert self.held.residents[key].lends, f"{key} gives no leases and the batcher was not told"

    def move(self, effect):
        match effect:
            case BeginLoad(name, where, weights, from_host):
                assert self.held.ledgers[where].held(Line.WEIGHTS, name) == weights
                assert (name, where) not in self.loading and (name, where) not in self.models
                assert where not in self.held.lost and KINDS[where] in self.held.facts(name).device_kinds
                assert not from_host or name in self.aside
                self.loading.append((name, where))
            case BeginUnload(name, where, keep):
                resident = self.held.residents[name, where]
                assert not resident.pinned and not resident.leases and not resident.kv_tokens
                assert not keep or where in TIERED
                self.models.remove((name, where))
                self.leaving.append((name, where, keep))
            case DropHost(name):
                self.aside.discard(name)
            case Abandon(name, where):
                assert where in self.held.lost
                self.models.remove((name, where))
            case _:
                raise AssertionError(effect)

    def tell_batcher(self, message):
        match message:
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

    def answered(self, ask, answer):
        self.asks[ask].append(answer)
        assert len(self.asks[ask]) == 1
        what, name = self.asked[ask]
        if answer.error is None and what == "pin":
            self.promised[name] = self.held.pins[name].device
        if answer.error is None and what == "unload":
            assert not self.to_go[ask], "it is not gone"

    def there(self, where):
        return self.devices[where % len(self.devices)]

    @rule(name=unit)
    def want(self, name):
        if name not in self.wanted:
            self.failed.discard(name)
            self.wanted.add(name)
            self.does("wanted", name)

    @rule(name=unit)
    def unwant(self, name):
        if name in self.wanted and not (name == "g" and self.sequences):
            self.wanted.discard(name)
            self.denied.discard(name)
            self.does("unwanted", name)

    @rule(name=unit)
    def expect(self, name):
        claims = bool(self.held.claims)
        before = len(self.loading)
        self.does("expected", name)
        assert not claims or len(self.loading) == before, "it is loaded ahead while others wait for room"

    @rule(name=unit, where=device)
    def spread(self, name, where):
        self.does("spread", name, self.there(where))

    @rule(name=unit, where=device, cost=st.integers(1, 400), more=st.integers(0, 200), kv=st.integers(1, 400))
    def need(self, name, where, cost, more, kv):
        where = self.there(where)
        if name not in self.wanted or where in self.held.lost:
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
    @rule(pick=st.integers(0, 99), oom=st.integers(0, 9), keep=st.floats(0, 1), peak=st.integers(0, 500))
    def release(self, pick, oom, keep, peak):
        lease = self.leases.pop(pick % len(self.leases))
        tokens = int(self.held.residents[lease.unit, lease.device].kv_tokens * keep)
        if lease.unit == "g" and lease.device not in self.held.lost:
            self.sequences = {lease.device: tokens} if tokens else {}
        cost = lease.max_cost
        self.does("release", Release(lease, tokens, 0.1, cost, peak, out_of_memory=oom == 0))

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
            self.models.add((name, where))
            self.does("loaded", name, where, 0.5)
        else:
            self.went(name, where)
            self.does("load_failed", name, where, BROKEN)

    def went(self, name, where):
        for keys in self.to_go.values():
            keys.discard((name, where))

    @precondition(lambda self: self.leaving)
    @rule(parks=st.integers(0, 4), extra=st.sampled_from([0, 0, 300]))
    def unload_ends(self, parks, extra):
        name, where, keep = self.leaving.pop(0)
        kept = self.footprints[name].weights_bytes + extra if keep and parks else 0
        if kept:
            self.aside.add(name)
        self.went(name, where)
        self.does("unloaded", name, where, kept_bytes=kept)

    @rule(name=unit, what=st.sampled_from(["load", "unload", "pin", "pin", "unpin"]))
    def ask(self, name, what, **fields):
        number = len(self.asks)
        self.asks[number] = []
        self.asked[number] = (what, name)
        self.to_go[number] = {r.key for r in self.held.copies(name)}
        if what == "unpin":
            self.promised.pop(name, None)
        self.does(what, name, number, **fields)

    @rule(name=unit, where=st.sampled_from([None, *DEVICES, "nowhere"]), slots=st.integers(0, 3))
    def pin_there(self, name, where, slots):
        self.ask(name, "pin", device=where, min_slots=slots)

    @rule(where=device, size=st.sampled_from([0, 0, 100, 600, 950]))
    def others(self, where, size):
        self.does("observed", self.there(where), size)

    @rule(where=device, often=st.integers(0, 3))
    def lose(self, where, often):
        if often:
            return
        where = self.there(where)
        self.promised = {name: place for name, place in self.promised.items() if place != where}
        if where in self.sequences:
            self.sequences = {}
        for name in UNITS:
            self.went(name, where)
        self.does("lost", where, "it fell off the bus")

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
            if where in self.held.lost:
                assert ledger.used_bytes == 0 and not any(r.resident or r.leases for r in here)
                continue
            assert lines[Line.WEIGHTS] == sum(
                ledger.held(Line.WEIGHTS, r.unit) for r in here if r.resident
            ), "bytes are held for what is not there"
            leases = [lease for lease in self.leases if lease.device == where]
            assert {str(lease.id) for lease in leases} == {
                o for line, o, _ in ledger if line is Line.WORKSPACE
            }
            assert lines[Line.KV] == sum(r.kv_bytes for r in here)
            assert lines[Line.WORKSPACE] == sum(r.workspace_bytes for r in here)
            for resident in here:
                assert resident.leases == sum(lease.unit == resident.unit for lease in leases)
                self.check(resident)
        assert sum(kept.nbytes for kept in self.held.host) <= HOST_BYTES

    def check(self, resident):
        key = resident.key
        if resident.pinned:
            assert resident.state is Residency.READY and not resident.yielding, "a pin leaves"
            pin = self.held.pins[resident.unit]
            assert resident.device in (pin.device, pin.former and pin.former.device)
        assert resident.state is not Residency.LOADING or key in self.loading
        assert resident.state is not Residency.LEAVING or key in [(u, d) for u, d, _ in self.leaving]
        assert (resident.state is Residency.READY) == (key in self.models)

    @invariant()
    def what_was_promised_holds(self):
        for name in getattr(self, "promised", ()):
            assert any(r.pinned for r in self.held.ready(name)), f"{name} was pinned and has left"

    def teardown(self):
        """When the world goes on to answer, all who wait are told."""
        if not hasattr(self, "held"):
            return
        for where in range(len(self.devices)):
            self.others(where, 0)
        for _ in range(300):
            self.answer_everything()
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
        unanswered = [self.asked[ask] for ask, answers in self.asks.items() if len(answers) != 1]
        assert not unanswered, f"asks {unanswered} were never answered"
        assert not self.wanted, f"{self.wanted} wait and nothing happens; claims: {self.held.claims}"
        assert not self.held.claims, "somebody is to come whom nobody asks for"
        for pinned, pin in self.held.pins.items():
            if pin.device not in self.held.lost:
                assert self.held.residents[pinned, pin.device].pinned and pin.former is None
        assert {kept.unit for kept in self.held.host} == self.aside

    def answer_everything(self):
        while self.leases:
            self.release(0, 1, 0.0, 0)
        while self.inspecting:
            self.inspect(1)
        while self.loading:
            self.load_ends(0, 1)
        while self.leaving:
            self.unload_ends(1, 0)

    def at_rest(self):
        moving = self.leases or self.inspecting or self.loading or self.leaving or self.sequences
        return not moving and self.custody.wake_at == math.inf


TestCustodian = Custodian.TestCase
TestCustodian.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.reuse, Phase.generate, Phase.shrink),
)
