"""A memory manager's decisions on small numbers, one message at a time."""

from __future__ import annotations

from engine.conversation import Granted, Need, Release
from engine.errors import Failure
from engine.memory.custody import Custody
from engine.memory.effects import Answer, BeginLoad, BeginUnload
from engine.memory.footprint import Footprint
from engine.memory.holdings import Holdings
from engine.memory.host_tier import HostTier
from engine.memory.ledger import Ledger
from engine.memory.rules import MemoryRules
from engine.units import UnitFacts

BROKEN = Failure("LoadFailed", "no such weights")


class Desk:
    """A custody of 1000 bytes a device; every unit's batches cost a byte a cost of 1, at least 10."""

    def __init__(
        self,
        *,
        memory=1000,
        devices=("d",),
        kinds=None,
        generative=(),
        kv=1,
        slots=4,
        host_memory=0,
        own=None,
        **rules,
    ):
        def facts(unit):
            if unit == "nothing":
                raise KeyError(unit)
            given = {"device_kinds": ("simulated",), "max_batch_cost": 80} | (own or {}).get(unit, {})
            return UnitFacts(unit, unit, generative=unit in generative, **given)

        kinds = kinds or dict.fromkeys(devices, "simulated")
        tiered = [device for device, kind in kinds.items() if kind != "cpu" and host_memory]
        self.held = Holdings(
            facts,
            {device: Ledger(memory, 0.0) for device in kinds},
            kinds,
            dict.fromkeys(kinds, slots),
            HostTier(host_memory),
            tiered,
        )
        self.custody = Custody(self.held, MemoryRules(**rules))
        self.kv = kv
        self.now = 0.0

    def __getattr__(self, name):
        """`desk.wanted(unit)` is `custody.on_wanted(unit, now)`."""

        def call(*message, **fields):
            effects = getattr(self.custody, f"on_{name}")(*message, now=self.now, **fields)
            for ledger in self.held.ledgers.values():
                ledger.check()
            return effects

        return call

    def resident(self, unit, weights=100, device="d", seconds=1.0):
        """Bring `unit` to where it is ready; who must leave for it leaves."""
        asked = self.custody.on_wanted(unit, self.now)
        asked += self.custody.on_inspected(unit, Footprint(weights, 0, 1.0, self.kv), self.now)
        for other in unloads(asked):
            self.custody.on_unloaded(*other, self.now)
        effects = self.custody.on_loaded(unit, device, seconds, self.now)
        self.custody.on_unwanted(unit, self.now)
        return effects

    def second(self, unit, device):
        """A copy of what is ready elsewhere."""
        self.custody.on_wanted(unit, self.now)
        assert loads(self.custody.on_spread(unit, device, self.now)) == [(unit, device)]
        self.custody.on_loaded(unit, device, 1.0, self.now)
        self.custody.on_unwanted(unit, self.now)

    def uses(self, unit, device="d", times=1):
        """So many batches of it, one after the other, at once."""
        for _ in range(times):
            lease = granted(self.need(need(unit, device=device)))
            self.release(release(lease))

    def known(self, unit, weights=100, **footprint):
        """Its size is known, and it is nowhere."""
        self.held.footprints[unit] = Footprint(weights, 0, 1.0, self.kv, **footprint)

    def state(self, unit, device="d"):
        return self.held.residents[unit, device].state


def need(unit, min_cost=10, want_cost=None, device="d", slot="d/0", floor=0, least=None, want=None):
    least = floor if least is None else least
    return Need(
        unit, device, slot, min_cost, want_cost or min_cost, floor, least, least if want is None else want
    )


def release(lease, **fields):
    return Release(lease, **fields)


def granted(effects):
    (grant,) = [e for e in effects if isinstance(e, Granted)]
    return grant.lease


def loads(effects):
    return [(e.unit, e.device) for e in effects if isinstance(e, BeginLoad)]


def unloads(effects):
    return [(e.unit, e.device) for e in effects if isinstance(e, BeginUnload)]


def answers(effects):
    """By ask: None for done, or the class of the error."""
    return {e.ask: e.error and type(e.error) for e in effects if isinstance(e, Answer)}


def error(effects, ask):
    (found,) = [e.error for e in effects if isinstance(e, Answer) and e.ask == ask]
    return found
