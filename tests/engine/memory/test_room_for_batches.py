"""Room is kept for the batches of those who stay, and not for those of whoever leaves."""

from __future__ import annotations

from engine.memory.custody import Custody
from engine.memory.effects import BeginLoad, BeginUnload
from engine.memory.footprint import Footprint
from engine.memory.holdings import Holdings
from engine.memory.ledger import Ledger
from engine.memory.rules import MemoryRules
from engine.units import UnitFacts


def test_a_unit_with_large_batches_makes_way_for_one_that_fits_only_without_them():
    facts = {"d": Ledger(120, 0.0)}, {"d": "simulated"}
    held = Holdings(lambda unit: UnitFacts(unit, unit, ("simulated",), max_batch_cost=1), *facts)
    custody = Custody(held, MemoryRules())
    custody.on_wanted("roomy", 0.0)
    custody.on_inspected("roomy", Footprint(40, 64, 0.0), 0.0)
    custody.on_loaded("roomy", "d", 0.1, 0.0)
    custody.on_unwanted("roomy", 0.0)

    custody.on_wanted("plain", 10.0)
    leaving = custody.on_inspected("plain", Footprint(70, 40, 0.0), 10.0)
    loading = custody.on_unloaded("roomy", "d", 10.1)

    # 70 + 64 would not fit even when the 40 are gone: 70 + 40 does.
    assert BeginUnload("roomy", "d") in leaving
    assert BeginLoad("plain", "d", 70) in loading
