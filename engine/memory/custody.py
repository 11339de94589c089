"""What the memory manager does on each message: messages in, effects out. Pure.

The live memory manager, the tests and the planner drive this one object. It is the only writer of
residency, leases and pins; each is a fact about a unit on a device.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace

from engine.conversation import Denied, Granted, Lease, Left, Need, Ready, Release, TooLarge, Unavailable
from engine.errors import EngineError, Failure, InvalidInput
from engine.events import ResidencyChanged
from engine.memory import eviction
from engine.memory.footprint import Footprint
from engine.memory.holdings import Holdings
from engine.memory.leasing import largest, size
from engine.memory.ledger import Line
from engine.memory.residency import Residency, Resident
from engine.memory.rules import MemoryRules


@dataclass(frozen=True, slots=True)
class Inspect:
    """Find out what this unit will take; `Inspected` comes back."""

    unit: str


@dataclass(frozen=True, slots=True)
class BeginLoad:
    """Load this unit; `Loaded` or `LoadFailed` comes back."""

    unit: str
    device: str
    weights_bytes: int


@dataclass(frozen=True, slots=True)
class BeginUnload:
    """Unload this unit; `Unloaded` comes back."""

    unit: str
    device: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What an operator asked for is done, or cannot be."""

    ask: int
    error: EngineError | None = None
    displaced: tuple[str, ...] = ()


Effect = (
    Inspect
    | BeginLoad
    | BeginUnload
    | Answer
    | Granted
    | Denied
    | TooLarge
    | Ready
    | Left
    | Unavailable
    | ResidencyChanged
)


@dataclass(slots=True)
class Claim:
    """A unit that should become resident and is not yet."""

    unit: str
    since: float
    device: str | None = None
    """Where room is being made for it."""


@dataclass(slots=True)
class Custody:
    held: Holdings
    rules: MemoryRules
    claims: dict[str, Claim] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)
    wake_at: float = math.inf
    """When `on_wake` should be called, if nothing comes before."""
    _asks: dict[str, list[int]] = field(default_factory=dict)  # operators who wait for a unit to be ready
    _pinning: dict[str, list[int]] = field(default_factory=dict)  # who wait for it to be inspected
    _unloading: dict[str, list[int]] = field(default_factory=dict)
    _inspecting: set[str] = field(default_factory=set)
    _starved: dict[tuple[str, str], float] = field(default_factory=dict)  # when to look again
    _leases: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def on_wanted(self, unit: str, now: float) -> list[Effect]:
        self.wanted.add(unit)
        return self._seek(unit, now)

    def on_unwanted(self, unit: str, now: float) -> list[Effect]:
        self.wanted.discard(unit)
        for resident in self.held.residents.values():
            if resident.unit == unit:
                resident.owed_bytes = 0
        if unit in self.claims and unit not in self._asks and unit not in self.held.pins:
            del self.claims[unit]
        return self._advance(now)

    def on_need(self, need: Need, now: float) -> list[Effect]:
        """Grant a lease if the unit is there and memory for the batch is free."""
        resident = self.held.residents.get((need.unit, need.device))
        if resident is None or not resident.lends:
            denied = Denied(need.slot, need.unit, need.device, "loading")
            return [denied, *self._seek(need.unit, now)]
        ledger = self.held.ledgers[need.device]
        spoken_for = self._spoken_for(need.device)
        if resident.yielding:  # its sequences go on to their end, and nobody joins them
            need, spoken_for = replace(need, kv_min=need.kv_floor, kv_want=need.kv_floor), 0
        sized = size(need, resident.footprint, ledger.free_bytes - spoken_for)
        if sized is None and not self.held.others_active(resident):
            sized = size(need, resident.footprint, ledger.free_bytes)
        if sized is None:
            return self._make_room(need, resident, now)
        lease = Lease(
            next(self._leases),
            need.unit,
            need.device,
            need.slot,
            sized.cost,
            sized.kv_tokens * resident.footprint.kv_bytes_per_token,
        )
        held = ledger.hold(Line.WORKSPACE, str(lease.id), sized.workspace_bytes)
        held = held and ledger.hold(Line.KV, need.unit, lease.kv_bytes)
        assert held, "size() took more than is free"
        resident.kv_tokens = sized.kv_tokens
        resident.leases += 1
        resident.owed_bytes = 0
        eviction.used(resident, now)
        granted: list[Effect] = [Granted(lease, sized.kv_tokens)]
        if sized.kv_tokens < need.kv_want:  # sequences wait beside weights that nobody wants
            granted += self._evict_idle(resident, f"for sequences of {need.unit}", now)
        return granted

    def on_release(self, release: Release, now: float) -> list[Effect]:
        """A lease is over: its workspace is free, and whoever waited for bytes may ask again."""
        lease = release.lease
        resident, ledger = self.held.residents[lease.unit, lease.device], self.held.ledgers[lease.device]
        ledger.hold(Line.WORKSPACE, str(lease.id), 0)
        resident.kv_tokens = release.kv_tokens
        ledger.hold(Line.KV, lease.unit, resident.kv_bytes)
        resident.leases -= 1
        eviction.used(resident, now, uses=0)
        if release.out_of_memory:
            self._learn_larger(resident)
        return [*self._leave_if_idle(resident, now), *self._feed(lease.device), *self._advance(now)]

    def on_inspected(self, unit: str, footprint: Footprint, now: float) -> list[Effect]:
        self._inspecting.discard(unit)
        self.held.footprints[unit] = footprint
        pinning: list[Effect] = []
        for ask in self._pinning.pop(unit, []):
            pinning += self.on_pin(unit, ask, now)
        return [*pinning, *self._advance(now)]

    def on_inspect_failed(self, unit: str, failure: Failure, now: float) -> list[Effect]:
        self._inspecting.discard(unit)
        devices = self.held.devices(unit)
        if not devices:
            return self._give_up(unit, failure)
        return self._fail(self.held.entry(unit, devices[0], Footprint(0)), failure, now)

    def on_loaded(self, unit: str, device: str, seconds: float, now: float) -> list[Effect]:
        resident = self.held.residents[unit, device]
        resident.move(Residency.READY, now)
        eviction.used(resident, now, uses=0)
        resident.load_seconds = seconds
        resident.attempts, resident.failure = 0, None
        resident.pinned = self.held.pins.get(unit) == device
        weights = resident.footprint.weights_bytes
        return [
            Ready(unit, device, seconds),
            ResidencyChanged(unit, device, "loaded", now, seconds, weights),
            *self._answers(unit),
            *self._feed(device),
            *self._advance(now),
        ]

    def on_load_failed(self, unit: str, device: str, failure: Failure, now: float) -> list[Effect]:
        self.held.ledgers[device].hold(Line.WEIGHTS, unit, 0)
        failed = self._fail(self.held.residents[unit, device], failure, now)
        return [*failed, *self._feed(device), *self._advance(now)]

    def on_unloaded(self, unit: str, device: str, now: float) -> list[Effect]:
        resident = self.held.residents[unit, device]
        resident.move(Residency.ABSENT, now)
        resident.yielding = resident.pinned = False
        self.held.ledgers[device].hold(Line.WEIGHTS, unit, 0)
        answers: list[Effect] = [Answer(ask) for ask in self._unloading.pop(unit, [])]
        again = self._seek(unit, now) if unit in self.wanted or unit in self.held.pins else []
        return [*answers, *again, *self._feed(device), *self._advance(now)]

    def on_observed(self, device: str, foreign_bytes: int, now: float) -> list[Effect]:
        """What other processes hold on the card: it lowers what is free, and evicts nobody by itself."""
        self.held.ledgers[device].observe_foreign(foreign_bytes)
        return [*self._feed(device), *self._advance(now)]

    def on_wake(self, now: float) -> list[Effect]:
        return self._advance(now)

    def on_load(self, unit: str, ask: int, now: float) -> list[Effect]:
        if self.held.ready(unit):
            return [Answer(ask)]
        self._asks.setdefault(unit, []).append(ask)
        return self._seek(unit, now)

    def on_unload(self, unit: str, ask: int, now: float) -> list[Effect]:
        if unit in self.held.pins:
            return [Answer(ask, InvalidInput(f"{unit} is pinned; unpin it first."))]
        there = [r for r in self.held.residents.values() if r.unit == unit and r.state is Residency.READY]
        if not there:
            return [Answer(ask)]
        self._unloading.setdefault(unit, []).append(ask)
        return [effect for resident in there for effect in self._evict(resident, "by an operator", now)]

    def on_pin(self, unit: str, ask: int, now: float) -> list[Effect]:
        """Pins are guarantees: one that does not fit beside the others is refused with the arithmetic."""
        if unit not in self.held.footprints:
            self._pinning.setdefault(unit, []).append(ask)
            return self._inspect(unit)
        device = self.held.home(unit)
        if device is None:
            return [Answer(ask, self.held.no_room(unit))]
        self.held.pins[unit] = device
        self._asks.setdefault(unit, []).append(ask)
        resident = self.held.residents.get((unit, device))
        if resident is None or resident.state is not Residency.READY:
            return self._seek(unit, now)
        resident.pinned = True
        text = f"{unit} was pinned before it had left."
        kept: list[Effect] = [Answer(a, InvalidInput(text)) for a in self._unloading.pop(unit, [])]
        stays = self._stay(resident) if resident.yielding else self._answers(unit)
        return [*kept, *stays, *self._advance(now)]

    def on_unpin(self, unit: str, ask: int, now: float) -> list[Effect]:
        self.held.pins.pop(unit, None)
        for resident in self.held.residents.values():
            if resident.unit == unit:
                resident.pinned = False
        return [Answer(ask), *self._advance(now)]

    def displaced(self) -> tuple[str, ...]:
        """Units of known size that can no longer be resident beside what is pinned."""
        others = [unit for unit in sorted(self.held.footprints) if unit not in self.held.pins]
        return tuple(u for u in others if self.held.home(u) is None and self.held.fits_alone(u))

    def _seek(self, unit: str, now: float) -> list[Effect]:
        """Make `unit` resident, unless it is or is about to be."""
        if ready := self.held.ready(unit):
            return [Ready(unit, ready.device)]
        mine = [r for r in self.held.residents.values() if r.unit == unit]
        if any(r.state is Residency.LOADING for r in mine):
            return []
        for resident in mine:
            if resident.state is Residency.FAILED and now < resident.since + self.rules.load_cooldown:
                assert resident.failure is not None
                wait = resident.since + self.rules.load_cooldown - now
                return self._give_up(unit, replace_retry(resident.failure, wait))
        self.claims.setdefault(unit, Claim(unit, now))
        if unit not in self.held.footprints:
            return self._inspect(unit)
        return self._advance(now)

    def _inspect(self, unit: str) -> list[Effect]:
        if unit in self._inspecting:
            return []
        self._inspecting.add(unit)
        return [Inspect(unit)]

    def _advance(self, now: float) -> list[Effect]:
        """Bring every claim as far as it can go now, the oldest first."""
        effects = self._look_again(now)
        self.wake_at = min(self._starved.values(), default=math.inf)
        effects += self._expire(now)
        for claim in tuple(self.claims.values()):
            if claim.unit in self.held.footprints:
                effects += self._place(claim, now)
        return [*effects, *self._unyield()]

    def _place(self, claim: Claim, now: float) -> list[Effect]:
        unit, footprint = claim.unit, self.held.footprints[claim.unit]
        device = self.held.home(unit)  # a pin since the last look may have changed it
        if device is None:
            return self._give_up(unit, self.held.no_room(unit).failure())
        if claim.device != device:
            claim.device = None
        residents = [r for r in self.held.residents.values() if r.device == device]
        if any(r.unit == unit and r.resident for r in residents):
            return []  # it is still leaving; `on_unloaded` comes back here
        if sum(r.state is Residency.LOADING for r in residents) >= self.rules.loads_at_once:
            return []
        # Room that is being made for those who asked before is theirs: or the small keep the large out.
        earlier = itertools.takewhile(lambda other: other is not claim, self.claims.values())
        before = [other.unit for other in earlier if other.device == device]
        shortfall = self.held.shortfall(unit, device, self.wanted, before=before)
        missing = shortfall - sum(r.held_bytes for r in residents if r.yielding)
        if max(self.held.shortfall(unit, device, self.wanted), missing) <= 0:
            held = self.held.ledgers[device].hold(Line.WEIGHTS, unit, footprint.weights_bytes)
            assert held, "shortfall() said that it fits"
            del self.claims[unit]
            resident = self.held.entry(unit, device, footprint)
            resident.footprint = footprint
            resident.move(Residency.LOADING, now)
            return [BeginLoad(unit, device, footprint.weights_bytes)]
        leaving = eviction.victims(
            missing,
            claim.since,
            residents,
            wanted=self.wanted,
            rules=self.rules,
            now=now,
            relief=lambda gone: shortfall - self.held.shortfall(unit, device, self.wanted, gone, before),
        )
        if isinstance(leaving, float):
            self.wake_at = min(self.wake_at, leaving)
            return []
        claim.device = device
        return [e for r in leaving for e in self._evict(r, f"for {unit}", now)]

    def _evict_idle(self, beside: Resident, reason: str, now: float) -> list[Effect]:
        """One that has no work leaves, of least worth first; the next time it is asked, the next one."""
        others = [r for r in self.held.residents.values() if r.device == beside.device and r is not beside]
        if any(r.state is Residency.LEAVING for r in others):
            return []
        leaving = eviction.choose(
            1, others, unwanted_only=True, wanted=self.wanted, policy=self.rules.policy, now=now
        )
        return [effect for resident in leaving or [] for effect in self._evict(resident, reason, now)]

    def _evict(self, resident: Resident, reason: str, now: float) -> list[Effect]:
        """No more leases from now on; the weights go when the last lease ends."""
        resident.yielding = True
        event = "unloaded" if resident.unit in self._unloading else "evicted"
        weights = resident.footprint.weights_bytes
        going = self._leave_if_idle(resident, now)
        left = [] if going or resident.lends else [Left(resident.unit, resident.device)]
        changed = ResidencyChanged(resident.unit, resident.device, event, now, 0.0, weights, reason)
        return [*left, changed, *going]

    def _leave_if_idle(self, resident: Resident, now: float) -> list[Effect]:
        if not resident.yielding or resident.busy or resident.state is not Residency.READY:
            return []
        resident.move(Residency.LEAVING, now)
        resident.owed_bytes = 0
        return [Left(resident.unit, resident.device), BeginUnload(resident.unit, resident.device)]

    def _unyield(self) -> list[Effect]:
        """A unit that was to leave for a claim that is gone stays after all."""
        effects: list[Effect] = []
        making_room = {claim.device for claim in self.claims.values()}
        for resident in self.held.residents.values():
            asked = resident.unit in self._unloading or resident.device in making_room
            if resident.yielding and resident.state is Residency.READY and not asked:
                effects += self._stay(resident)
        return effects

    def _stay(self, resident: Resident) -> list[Effect]:
        """It does not leave after all; whoever has asked for it since has it."""
        resident.yielding = False
        self.claims.pop(resident.unit, None)
        return [Ready(resident.unit, resident.device), *self._answers(resident.unit)]

    def _answers(self, unit: str) -> list[Effect]:
        """To those who asked for the unit, now that it is there."""
        return [Answer(ask, displaced=self.displaced()) for ask in self._asks.pop(unit, [])]

    def _expire(self, now: float) -> list[Effect]:
        """Units that nobody used for the idle time leave."""
        effects: list[Effect] = []
        if self.rules.idle_unload is None:
            return effects
        for resident in self.held.residents.values():
            idle = resident.state is Residency.READY and not (resident.pinned or resident.busy)
            if not idle or resident.yielding or resident.unit in self.wanted:
                continue
            until = resident.last_used + self.rules.idle_unload
            if until <= now:
                effects += self._evict(resident, "idle", now)
            else:
                self.wake_at = min(self.wake_at, until)
        return effects

    def _fail(self, resident: Resident, failure: Failure, now: float) -> list[Effect]:
        resident.move(Residency.FAILED, now)
        resident.attempts += 1
        resident.failure = replace_retry(failure, self.rules.load_cooldown, attempts=resident.attempts)
        return [
            ResidencyChanged(resident.unit, resident.device, "failed", now, reason=failure.message),
            *self._give_up(resident.unit, resident.failure),
        ]

    def _give_up(self, unit: str, failure: Failure) -> list[Effect]:
        self.claims.pop(unit, None)
        asks = [*self._asks.pop(unit, []), *self._pinning.pop(unit, [])]
        if asks:
            self.held.pins.pop(unit, None)
        return [Unavailable(unit, failure), *[Answer(ask, failure.error()) for ask in asks]]

    def _make_room(self, need: Need, resident: Resident, now: float) -> list[Effect]:
        """The batch does not fit now. Wait for others to finish, evict who is idle, or say never."""
        key = (need.unit, need.device)
        denied = Denied(need.slot, need.unit, need.device, "busy")
        footprint, ledger = resident.footprint, self.held.ledgers[need.device]
        least = footprint.workspace(max(1, need.min_cost))
        least += (need.kv_min - need.kv_floor) * footprint.kv_bytes_per_token
        if self.held.others_active(resident):
            self._starved[key], resident.owed_bytes = math.inf, least
            return [denied]
        others = [r for r in self.held.residents.values() if r.device == need.device and r is not resident]
        leaving = eviction.for_batch(
            least - ledger.free_bytes, others, wanted=self.wanted, rules=self.rules, now=now
        )
        look_again = math.inf
        if isinstance(leaving, float):
            look_again, leaving = leaving, []
        if leaving is None:
            pinned = sum(r.footprint.weights_bytes for r in others if r.pinned)
            own = ledger.lines()[Line.CONTEXT] + footprint.weights_bytes + resident.kv_bytes
            free = ledger.budget_bytes - pinned - own
            if least > free:
                resident.owed_bytes = 0
                return [TooLarge(need.slot, need.unit, need.device, *largest(footprint, free))]
            leaving = []  # only what is foreign stands in the way, and may go as it came
        self._starved[key], resident.owed_bytes = look_again, least
        self.wake_at = min(self.wake_at, look_again)
        return [
            denied,
            *[e for r in leaving for e in self._evict(r, f"for a batch of {need.unit}", now)],
        ]

    def _feed(self, device: str) -> list[Effect]:
        """Bytes came free on `device`: those that were denied for want of them may ask again."""
        return self._tell_starved([key for key in self._starved if key[1] == device])

    def _look_again(self, now: float) -> list[Effect]:
        """Those whose neighbours have had their turn may ask again, and they leave."""
        return self._tell_starved([key for key, when in self._starved.items() if when <= now])

    def _tell_starved(self, keys: list[tuple[str, str]]) -> list[Effect]:
        for key in keys:
            del self._starved[key]
        return [Ready(*key) for key in sorted(keys) if self.held.residents[key].lends]

    def _spoken_for(self, device: str) -> int:
        """Free bytes that a lease must not take: those for claims that room is being made for, beyond
        what comes free when those have left that leave for them."""
        claims = [c for c in self.claims.values() if c.device == device]
        coming = [r for r in self.held.residents.values() if r.device == device and r.yielding]
        wanted = sum(self.held.footprints[c.unit].weights_bytes for c in claims)
        return max(0, wanted - sum(r.held_bytes for r in coming))

    def _learn_larger(self, resident: Resident) -> None:
        """A batch ran out of memory: the next are taken to need half as much again."""
        known = resident.footprint
        more = replace(known, workspace_per_cost=known.workspace_per_cost * 1.5)
        resident.footprint = self.held.footprints[resident.unit] = more


def replace_retry(failure: Failure, seconds: float, **details: int) -> Failure:
    """The same failure, worth another try after `seconds`."""
    return Failure(failure.kind, failure.message, failure.item, seconds, {**failure.details, **details})
