"""An adapter is a unit that keeps its base: tables of what the memory manager does about both."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from engine.conversation import Left, Ready, TooLarge, Unavailable
from engine.errors import InvalidInput, LoadFailed, NoRoom
from engine.memory import placement
from engine.memory.footprint import Footprint
from engine.memory.ledger import Line
from engine.memory.residency import Residency
from tests.engine.memory.desk import BROKEN, Desk, answers, error, granted, loads, need, release, unloads

MIB = 2**20
READY, LEAVING, ABSENT = Residency.READY, Residency.LEAVING, Residency.ABSENT


def desk(**given):
    """`a` has the adapters `a:p` and `a:q`."""
    adapters = {f"a:{name}": {"adapts": "a"} for name in "pq"}
    return Desk(own=adapters | given.pop("own", {}), **given)


def lent(at, *adapters, unit="a", cost=10, goes_on=()):
    """A lease for a batch of `unit` whose next job is read with these."""
    asked = replace(need(unit, cost), needed=adapters, adapters=(*goes_on, *adapters))
    return granted(at.need(asked))


def told(effects, kind):
    return [(e.unit, e.device) for e in effects if isinstance(e, kind)]


def test_an_adapter_comes_after_its_base_and_has_a_line_of_its_own():
    at = desk()

    asked = at.wanted("a:p")
    at.known("a", 100)
    first = at.inspected("a:p", Footprint(7))
    second = at.loaded("a", "d", 1.0)
    third = at.loaded("a:p", "d", 0.1)

    assert [e.unit for e in asked] == ["a", "a:p"]  # both are inspected
    assert (loads(first), loads(second), loads(third)) == ([("a", "d")], [("a:p", "d")], [])
    assert told(third, Ready) == [("a:p", "d")]
    ledger = at.held.ledgers["d"]
    assert (ledger.held(Line.WEIGHTS, "a"), ledger.held(Line.WEIGHTS, "a:p")) == (100, 7)


def both(at, *adapters, weights=10):
    """`a`, and these over it."""
    at.resident("a")
    for name in adapters:
        at.resident(f"a:{name}", weights)
    return at


def test_a_base_leaves_only_when_its_adapters_have_left():
    at = both(desk(), "p", "q")

    first = at.unload("a", 1)
    second = at.unloaded("a:p", "d")
    third = at.unloaded("a:q", "d")
    last = at.unloaded("a", "d")

    assert unloads(first) == [("a:p", "d"), ("a:q", "d")] and {*told(first, Left)} >= {("a", "d")}
    assert (unloads(second), unloads(third)) == ([], [("a", "d")])
    assert answers(last) == {1: None} and at.held.ledgers["d"].used_bytes == 0


def test_a_lease_holds_the_base_and_the_adapters_that_its_batch_may_need():
    at = both(desk(), "p", "q")
    lease = lent(at, "a:p")

    asked = [*at.unload("a:p", 1), *at.unload("a:q", 2)]
    ended = at.release(release(lease))

    assert lease.adapters == ("a:p",)
    assert unloads(asked) == [("a:q", "d")] and told(asked, Left)[0] == ("a:p", "d")
    assert unloads(ended) == [("a:p", "d")]


def test_sequences_keep_their_adapter_between_quanta():
    at = both(desk(generative=("a",)), "p")
    lease = granted(at.need(_writes(at, "a:p")))
    at.release(release(lease, kv_tokens=20, adapters=("a:p",)))

    asked = at.unload("a:p", 1)
    going_on = granted(at.need(_writes(at, goes_on=True)))
    ended = at.release(release(going_on, kv_tokens=0))

    assert unloads(asked) == [] and told(asked, Left) == [("a:p", "d")]
    assert going_on.adapters == ("a:p",)  # they go on with it, though nobody else may
    assert unloads(ended) == [("a:p", "d")]


def _writes(at, *adapters, goes_on=False):
    asked = need("a", 0, 10, floor=20, least=20, want=20) if goes_on else need("a", 10, least=20)
    return replace(asked, needed=adapters, adapters=("a:p",))


def test_an_adapter_that_is_to_leave_is_lent_to_nobody_more():
    at = both(desk(), "p")
    first = lent(at, "a:p")
    at.unload("a:p", 1)

    second = lent(at, "a:p")

    assert (first.adapters, second.adapters) == (("a:p",), ())


def test_idle_adapters_leave_before_their_base_by_worth_and_size():
    at = both(desk(memory=300), "p", "q", weights=40)
    at.now = 100.0
    at.uses("a", times=5)
    at.now = 200.0

    effects = at.wanted("b")
    effects += at.inspected("b", Footprint(130))

    assert {unit for unit, _ in unloads(effects)} == {"a:p"} and at.state("a") is READY


def test_where_the_base_goes_each_byte_is_counted_once():
    at = both(desk(memory=300), "p", "q", weights=40)  # 180 of 300
    at.now = 100.0

    effects = at.wanted("b")
    effects += at.inspected("b", Footprint(290))
    for unit in ("a:p", "a:q"):
        effects += at.unloaded(unit, "d")
    effects += at.unloaded("a", "d")

    assert [unit for unit, _ in unloads(effects)] == ["a:p", "a:q", "a"]
    assert loads(effects) == [("b", "d")]


def test_an_adapter_s_claim_turns_out_others_but_never_its_own_base():
    at = desk(memory=200)
    at.resident("a", 100)
    at.resident("b", 60)
    at.now = 100.0

    effects = at.wanted("a:p")
    effects += at.inspected("a:p", Footprint(50))

    assert unloads(effects) == [("b", "d")]


def test_one_that_fits_on_no_device_beside_its_base_is_refused_with_the_arithmetic():
    at = desk(memory=200)
    at.resident("a", 100)

    at.load("a:p", 1)
    effects = at.inspected("a:p", Footprint(150 * 2**20))

    assert "beside the" in str(error(effects, 1)) and isinstance(error(effects, 1), NoRoom)
    assert told_unavailable(effects) == ["a:p"]


def told_unavailable(effects):
    return [e.unit for e in effects if isinstance(e, Unavailable)]


def test_a_load_that_fails_is_the_adapter_s_own_affair():
    at = both(desk(), "q")
    at.wanted("a:p")
    at.inspected("a:p", Footprint(10))

    effects = at.load_failed("a:p", "d", BROKEN)

    assert told_unavailable(effects) == ["a:p"] and at.state("a") is READY and at.state("a:q") is READY
    assert at.held.ledgers["d"].held(Line.WEIGHTS, "a:p") == 0


def test_a_base_that_cannot_be_had_fails_those_who_wait_for_its_adapters():
    at = desk()
    at.load("a:p", 1)
    at.known("a", 100)
    at.inspected("a:p", Footprint(10))

    effects = at.load_failed("a", "d", BROKEN)
    again = at.load("a:p", 2)

    assert told_unavailable(effects) == ["a", "a:p"]
    assert answers(effects).keys() == {1} and answers(again).keys() == {2}
    assert not at.held.claims


def test_a_pinned_adapter_keeps_its_base_and_counts_it():
    at = desk(memory=200)
    at.resident("a", 100)
    at.pin("a:p", 1)
    at.inspected("a:p", Footprint(20))
    done = at.loaded("a:p", "d", 0.1)
    at.resident("b", 60)
    at.now = 100.0

    refused = at.unload("a", 2)
    at.wanted("c")
    effects = at.inspected("c", Footprint(75))
    too_large = [*at.pin("e", 3), *at.inspected("e", Footprint(75))]

    assert answers(done) == {1: None}
    assert isinstance(error(refused, 2), InvalidInput) and "a:p" in str(error(refused, 2))
    assert unloads(effects) == [] and told_unavailable(effects) == ["c"]
    assert isinstance(error(too_large, 3), NoRoom) and error(too_large, 3).details["pins"] == ["a", "a:p"]


def test_slots_of_a_pinned_adapter_are_kept_for_batches_of_its_base():
    at = desk(memory=200)
    at.resident("a", 100)
    at.known("b", 50)
    at.held.footprints["a:p"] = Footprint(20)
    pinned = [*at.pin("a:p", 1, min_slots=3), *at.loaded("a:p", "d", 0.1)]
    both_batches = [lent(at, cost=20), lent(at, "a:p", cost=40)]

    refused = [*at.pin("a", 2, min_slots=9), *at.pin("b", 3)]

    assert answers(pinned) == {1: None} and at.held.set_aside("d") == {"a": 3 * at.held.floor("a", "d")}
    assert at.held.reserved("d", "a") == 0 and [lease.max_cost for lease in both_batches] == [20, 40]
    assert isinstance(error(refused, 2), InvalidInput) and isinstance(error(refused, 3), NoRoom)


def test_a_base_and_its_adapters_are_pinned_on_one_device():
    at = both(desk(devices=("d", "e")), "p", "q")
    at.pin("a:p", 1)

    elsewhere = [*at.pin("a", 2, device="e"), *at.pin("a:q", 3, device="e")]
    anywhere = [*at.pin("a", 4), *at.pin("a:q", 5)]

    assert {type(e) for e in (error(elsewhere, 2), error(elsewhere, 3))} == {InvalidInput}
    assert "a:p is pinned on d" in str(error(elsewhere, 2)) and answers(anywhere) == {4: None, 5: None}
    assert {pin.device for pin in at.held.pins.values()} == {"d"}


def test_a_base_does_not_leave_for_idleness_with_an_adapter_that_has_just_come():
    at = both(desk(idle_unload=5.0))
    at.known("a:p", 10)
    at.now = 4.0
    at.load("a:p", 1)
    at.loaded("a:p", "d", 0.1)
    at.now = 6.0

    early = at.wake()
    at.now = 9.0

    assert unloads(early) == [] and unloads(at.wake()) == [("a:p", "d")]


def test_what_was_pinned_and_is_not_leaves_again():
    at = both(desk(idle_unload=5.0), "p")
    at.pin("a:p", 1)
    at.now = 100.0
    kept = at.wake()

    gone = at.unpin("a:p", 2)

    assert unloads(kept) == [] and unloads(gone) == [("a:p", "d")]
    assert unloads(at.unloaded("a:p", "d")) == [("a", "d")]


def test_idle_ones_leave_by_their_own_time_and_the_base_by_its():
    at = both(desk(idle_unload=5.0), "p")
    at.now = 3.0
    at.uses("a")
    at.now = 6.0

    first = at.wake()
    at.unloaded("a:p", "d")
    at.now = 9.0

    assert unloads(first) == [("a:p", "d")]
    assert unloads(at.wake()) == [("a", "d")]


def test_a_batch_that_can_never_fit_beside_its_adapter_is_too_large_and_one_without_is_not():
    at = both(desk(memory=200), "p", weights=50)
    asked = replace(need("a", 80), needed=("a:p",), adapters=("a:p",))

    (said,) = [e for e in at.need(asked) if isinstance(e, TooLarge)]
    effects = at.need(need("a", 80))

    assert said.max_cost == 50
    assert unloads(effects) == [("a:p", "d")]  # a batch without it fits when it has left


@pytest.mark.parametrize("begun", ["loading", "ready"])
def test_a_lost_device_takes_both(begun):
    at = both(desk(devices=("d", "e")))
    at.wanted("a:p")
    at.inspected("a:p", Footprint(10))
    if begun == "ready":
        at.loaded("a:p", "d", 0.1)

    effects = at.lost("d", "it fell off the bus")
    effects += at.loaded("a", "e", 1.0)

    assert loads(effects) == [("a", "e"), ("a:p", "e")]
    assert at.held.ledgers["d"].used_bytes == 0


def test_a_base_that_stays_after_all_has_its_adapters_back():
    at = both(desk(memory=300), "p", weights=40)
    lease = lent(at, "a:p")
    at.now = 100.0
    at.wanted("b")
    at.inspected("b", Footprint(250))
    at.now = 200.0
    at.wake()
    assert at.held.residents["a", "d"].yielding and at.held.residents["a:p", "d"].yielding

    effects = at.unwanted("b")

    assert {*told(effects, Ready)} == {("a", "d"), ("a:p", "d")}
    assert unloads(at.release(release(lease))) == []


def test_what_its_base_is_to_leave_with_stays_for_no_claim_that_is_gone():
    at = both(desk(), "p")
    lease = lent(at, "a:p")
    at.unload("a", 1)

    woken = at.wake()
    ended = at.release(release(lease))

    assert told(woken, Ready) == [] and unloads(ended) == [("a:p", "d")]
    assert unloads(at.unloaded("a:p", "d")) == [("a", "d")]


def test_a_pin_of_an_adapter_is_refused_when_its_base_cannot_be_where_it_should():
    at = desk(devices=("d", "e"))
    at.resident("a")
    at.known("a:p", 10)
    begun = at.pin("a:p", 1, device="e")

    failed = at.load_failed("a", "e", BROKEN)

    assert loads(begun) == [("a", "e")] and told_unavailable(failed) == ["a:p"]
    assert isinstance(error(failed, 1), LoadFailed) and not at.held.claims and not at.held.pins


def test_a_pinned_adapter_that_lost_its_device_is_brought_elsewhere_with_its_base_until_that_works():
    at = both(desk(devices=("d", "e")), "p")
    at.pin("a:p", 1)
    moved = at.lost("d", "it fell off the bus")
    failed = at.load_failed("a", "e", BROKEN)
    at.now = at.custody.wake_at

    again = at.wake()
    at.loaded("a", "e", 1.0)
    at.loaded("a:p", "e", 0.1)

    assert (loads(moved), loads(again)) == ([("a", "e")], [("a", "e")])
    assert told_unavailable(failed) == ["a", "a:p"] and at.now == 10.0
    assert at.held.residents["a:p", "e"].pinned


def mebibytes(text):
    """The figures of a refusal in the order in which they stand."""
    return [int(number) for number in re.findall(r"(\d+) MiB", text)]


def test_the_figures_of_a_refusal_beside_pins_add_up_with_the_floor_that_counts():
    at = desk(memory=512 * MIB, own={"a": {"max_batch_cost": 8 * 300}})
    at.held.footprints["a"] = Footprint(86 * MIB, 0, 1.0 * MIB)
    at.held.footprints["a:p"] = Footprint(81 * MIB)
    at.held.footprints["m"] = Footprint(127 * MIB, 0, 1.0 * MIB)
    at.pin("a:p", 1)

    told = placement.no_room(at.held, "m").message

    weights, floor, budget, base, adapter, shared, together = mebibytes(told)
    assert (weights, floor, budget, base, adapter, shared) == (127, 10, 512, 86, 81, 300)
    assert "300 MiB for a." in told
    assert together == weights + base + adapter + max(floor, shared) > budget


def test_the_figures_of_a_refusal_name_what_is_set_aside_for_slots():
    at = Desk(memory=512 * MIB)
    at.held.footprints["s"] = Footprint(100 * MIB, 0, 10.0 * MIB)
    at.held.footprints["m"] = Footprint(200 * MIB, 0, 1.0 * MIB)
    at.pin("s", 1, min_slots=3)

    told = placement.no_room(at.held, "m").message

    weights, floor, budget, pinned, aside, together = mebibytes(told)
    assert (weights, floor, budget, pinned, aside) == (200, 10, 512, 100, 300)
    assert "for the 3 slots of s" in told
    assert together == weights + floor + pinned + aside > budget


def test_an_adapter_that_never_fits_is_told_with_the_floor_of_its_base():
    at = desk(memory=448 * MIB, own={"a": {"max_batch_cost": 8 * 300}})
    at.held.footprints["a"] = Footprint(86 * MIB, 0, 1.0 * MIB)
    at.held.footprints["a:p"] = Footprint(81 * MIB)

    told = placement.no_room(at.held, "a:p").message

    weights, base, floor, budget, needed = mebibytes(told)
    assert (weights, base, floor, budget) == (81, 86, 300, 448)
    assert needed == weights + base + floor + 1


def test_a_small_adapter_is_not_said_to_take_nothing():
    at = both(desk(memory=512 * MIB), "p", weights=300 * 1024)

    (first, _) = at.custody.leaving_order("d", 0.0)

    assert first.unit == "a:p" and first.why.endswith("300.0 KiB")
