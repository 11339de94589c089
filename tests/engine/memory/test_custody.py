"""What the memory manager decides, message by message."""

from __future__ import annotations

import math

import pytest

from engine.conversation import Denied, Granted, Left, Ready, Release, TooLarge, Unavailable
from engine.errors import InvalidInput, LoadFailed, NoRoom
from engine.events import ResidencyChanged
from engine.memory.effects import Answer, BeginLoad, BeginUnload, Inspect
from engine.memory.footprint import Footprint
from engine.memory.ledger import Line
from engine.memory.residency import Residency
from tests.engine.memory.desk import BROKEN, Desk, granted, need


def test_a_wanted_unit_is_inspected_loaded_and_ready():
    desk = Desk()

    assert desk.wanted("a") == [Inspect("a")]
    assert desk.wanted("a") == []  # however many ask
    assert desk.inspected("a", Footprint(100)) == [BeginLoad("a", "d", 100)]
    assert desk.wanted("a") == []
    assert Ready("a", "d", 2.0) in desk.loaded("a", "d", 2.0)
    desk.unwanted("a")
    assert desk.wanted("a") == [Ready("a", "d")]


def test_who_knows_that_leases_can_be_had_is_not_told_so_again():
    desk = Desk(devices=("d", "e"))
    desk.resident("a")

    assert desk.wanted("a", there=("d",)) == []
    desk.unwanted("a")
    assert desk.wanted("a", there=("e",)) == [Ready("a", "d")]


def test_bytes_are_held_before_the_load_begins_and_given_back_when_it_fails():
    desk = Desk()
    desk.wanted("a")
    desk.inspected("a", Footprint(100))
    assert desk.held.ledgers["d"].lines()[Line.WEIGHTS] == 100

    effects = desk.load_failed("a", "d", BROKEN)

    assert desk.held.ledgers["d"].used_bytes == 0
    (told,) = [e for e in effects if isinstance(e, Unavailable)]
    assert isinstance(told.failure.error(), LoadFailed) and told.failure.details["attempts"] == 1


def test_a_failed_unit_is_tried_again_only_after_its_cool_down():
    desk = Desk()
    desk.wanted("a")
    desk.inspected("a", Footprint(100))
    desk.load_failed("a", "d", BROKEN)
    desk.now = 4.0

    (soon,) = desk.wanted("a")
    desk.now = 10.0

    assert isinstance(soon, Unavailable) and soon.failure.retry_after == pytest.approx(6.0)
    assert desk.wanted("a") == [BeginLoad("a", "d", 100)]


def test_a_lease_holds_workspace_until_it_is_released():
    desk = Desk()
    desk.resident("a")

    lease = granted(desk.need(need("a", 10, 300)))

    assert (lease.max_cost, desk.held.ledgers["d"].lines()[Line.WORKSPACE]) == (300, 300)
    desk.release(Release(lease))
    assert desk.held.ledgers["d"].lines()[Line.WORKSPACE] == 0


def test_no_lease_on_what_is_not_there():
    desk = Desk()

    assert desk.need(need("a")) == [Denied("d/0", "a", "d", "loading"), Inspect("a")]


def test_who_is_denied_for_want_of_bytes_is_told_when_some_come_free():
    desk = Desk()
    desk.resident("a")
    first = granted(desk.need(need("a", 700)))

    denied = desk.need(need("a", 300, slot="d/1"))
    after = desk.release(Release(first))

    assert denied == [Denied("d/1", "a", "d", "busy")]
    assert Ready("a", "d") in after


@pytest.mark.parametrize("ends", ["loaded", "load_failed"])
def test_who_is_denied_while_another_loads_is_told_when_that_ends(ends):
    desk = Desk()
    desk.resident("a")
    desk.load("b", 1)
    desk.inspected("b", Footprint(500, 0, 1.0))

    denied = desk.need(need("a", 500))
    after = desk.loaded("b", "d", 1.0) if ends == "loaded" else desk.load_failed("b", "d", BROKEN)

    assert denied == [Denied("d/0", "a", "d", "busy")]
    assert Ready("a", "d") in after


def test_a_batch_that_does_not_fit_evicts_who_is_idle():
    desk = Desk()
    desk.resident("a")
    desk.resident("b", 500)

    effects = desk.need(need("a", 500))

    assert effects[0] == Denied("d/0", "a", "d", "busy")
    assert BeginUnload("b", "d") in effects and Left("b", "d") in effects
    assert Ready("a", "d") in desk.unloaded("b", "d")
    assert granted(desk.need(need("a", 500))).max_cost == 500


def test_a_job_that_can_never_fit_is_told_how_large_one_may_be():
    desk = Desk()
    desk.resident("a")
    desk.resident("b", 500)
    desk.pin("b", 1)

    assert desk.need(need("a", 401)) == [TooLarge("d/0", "a", "d", 400, 900 - 500 - 1)]


def test_what_only_others_on_the_card_take_is_waited_for():
    desk = Desk()
    desk.resident("a")
    desk.observed("d", 850)

    denied = desk.need(need("a", 100))

    assert denied == [Denied("d/0", "a", "d", "busy")]
    assert Ready("a", "d") in desk.observed("d", 0)
    assert desk.state("a") is Residency.READY


def test_foreign_bytes_evict_nobody_by_themselves():
    desk = Desk()
    desk.resident("a")
    desk.resident("b", 500)

    assert desk.observed("d", 900) == []
    assert (desk.state("a"), desk.state("b")) == (Residency.READY, Residency.READY)


def test_room_is_made_by_who_is_idle_and_the_claim_goes_in_when_it_has_left():
    desk = Desk()
    desk.resident("a", 600, seconds=1.0)
    desk.now = 1.0
    desk.wanted("b")

    effects = desk.inspected("b", Footprint(600, 0, 1.0))

    assert BeginUnload("a", "d") in effects
    assert BeginLoad("b", "d", 600) in desk.unloaded("a", "d")


def test_a_victim_with_a_lease_leaves_when_the_lease_ends():
    desk = Desk()
    desk.resident("a", 600)
    lease = granted(desk.need(need("a")))
    desk.wanted("b")
    desk.inspected("b", Footprint(600, 0, 1.0))
    assert desk.custody.wake_at == pytest.approx(5.0)
    desk.now = 5.0

    effects = desk.wake()

    assert effects[0] == Left("a", "d") and not [e for e in effects if isinstance(e, BeginUnload)]
    assert desk.need(need("a"))[0] == Denied("d/0", "a", "d", "loading")
    assert BeginUnload("a", "d") in desk.release(Release(lease))


def test_the_victim_that_is_asked_for_again_comes_back_after_the_one_it_made_room_for():
    desk = Desk()
    desk.resident("a", 600)
    desk.now = 1.0
    desk.wanted("b")
    desk.inspected("b", Footprint(600, 0, 1.0))  # `a` is leaving now

    assert desk.wanted("a") == []
    assert [e for e in desk.unloaded("a", "d") if isinstance(e, BeginLoad)] == [BeginLoad("b", "d", 600)]
    desk.loaded("b", "d", 1.0)
    desk.unwanted("b")
    desk.now = 10.0
    assert BeginUnload("b", "d") in desk.wake()
    assert BeginLoad("a", "d", 600) in desk.unloaded("b", "d")


def test_a_victim_whose_claim_is_gone_stays():
    desk = Desk()
    desk.resident("a", 600)
    lease = granted(desk.need(need("a")))
    desk.wanted("b")
    desk.inspected("b", Footprint(600, 0, 1.0))
    desk.now = 5.0
    desk.wake()

    assert desk.unwanted("b") == [Ready("a", "d")]
    assert not [e for e in desk.release(Release(lease)) if isinstance(e, BeginUnload)]


def test_who_asked_for_a_victim_has_it_when_it_stays():
    desk = Desk()
    desk.resident("a", 600)
    granted(desk.need(need("a")))
    desk.wanted("b")
    desk.inspected("b", Footprint(600, 0, 1.0))
    desk.now = 5.0
    desk.wake()
    assert desk.load("a", 7) == []

    effects = desk.unwanted("b")

    assert Answer(7) in effects
    assert not desk.held.claims


def test_a_pinned_victim_stays_and_what_it_made_room_for_is_told_there_is_none():
    desk = Desk()
    desk.resident("a", 600)
    granted(desk.need(need("a")))
    desk.wanted("b")
    desk.inspected("b", Footprint(600, 0, 1.0))
    desk.now = 5.0
    desk.wake()

    effects = desk.pin("a", 1)

    assert Ready("a", "d") in effects and Answer(1) in effects
    (told,) = [e for e in effects if isinstance(e, Unavailable)]
    assert told.unit == "b" and isinstance(told.failure.error(), NoRoom)
    assert not desk.held.residents["a", "d"].yielding


def test_when_a_victim_is_pinned_another_leaves_in_its_place():
    desk = Desk()
    for unit in "ac":
        desk.resident(unit, 300)
        granted(desk.need(need(unit, slot=f"d/{unit}")))
    desk.wanted("b")
    desk.inspected("b", Footprint(600, 0, 1.0))
    desk.now = 5.0
    desk.wake()
    (victim,) = [r.unit for r in desk.held.residents.values() if r.yielding]
    (other,) = {"a", "c"} - {victim}

    effects = desk.pin(victim, 1)

    assert Ready(victim, "d") in effects and Answer(1) in effects
    assert [r.unit for r in desk.held.residents.values() if r.yielding] == [other]


def test_a_unit_that_is_pinned_before_it_has_left_stays_and_the_unload_is_refused():
    desk = Desk()
    desk.resident("a", 600)
    lease = granted(desk.need(need("a")))
    desk.unload("a", 1)

    effects = desk.pin("a", 2)

    (refused,) = [e for e in effects if isinstance(e, Answer) and e.ask == 1]
    assert isinstance(refused.error, InvalidInput) and Answer(2) in effects
    assert not [e for e in desk.release(Release(lease)) if isinstance(e, BeginUnload)]


def test_one_that_is_to_leave_when_it_has_come_is_told_with_the_reason_for_that():
    desk = Desk()
    desk.known("a")
    desk.load("a", 1)
    desk.unload("a", 2, reason="its version serves no more")

    effects = desk.loaded("a", "d", 1.0)

    assert [e.reason for e in effects if isinstance(e, ResidencyChanged) and e.event == "unloaded"] == [
        "its version serves no more"
    ]


def test_a_pinned_unit_is_not_unloaded_before_it_is_unpinned():
    desk = Desk()
    desk.resident("a")
    desk.pin("a", 1)

    (refused,) = desk.unload("a", 2)
    desk.unpin("a", 3)

    assert isinstance(refused.error, InvalidInput)
    assert BeginUnload("a", "d") in desk.unload("a", 4)
    assert Answer(4) in desk.unloaded("a", "d")


def test_a_pin_that_does_not_fit_beside_the_others_is_refused_with_the_arithmetic():
    desk = Desk(memory=10 * 2**20)
    desk.resident("a", 6 * 2**20)
    desk.pin("a", 1)
    desk.pin("b", 2)

    (answer,) = desk.inspected("b", Footprint(5 * 2**20, 0, 1.0))

    assert isinstance(answer.error, NoRoom)
    assert "b takes 5 MiB" in answer.error.message and "pins hold a 6 MiB" in answer.error.message
    assert answer.error.details == {"pins": ["a"]}


def test_everything_pinned_and_a_fourth_model_asked():
    desk = Desk()
    for ask, unit in enumerate("abc"):
        desk.resident(unit, 300)
        desk.pin(unit, ask)
    desk.wanted("d4")

    (told,) = desk.inspected("d4", Footprint(300, 0, 1.0))

    assert isinstance(told, Unavailable)
    assert told.failure.error().details == {"pins": ["a", "b", "c"]}


def test_pins_that_are_asked_for_at_once_each_have_a_place_of_their_own():
    desk = Desk(devices=("d", "e"), loads_at_once=1)
    for ask, unit in enumerate("abc"):
        desk.pin(unit, ask)

    effects = [e for unit in "abc" for e in desk.inspected(unit, Footprint(600, 0, 1.0))]

    assert [e for e in effects if isinstance(e, BeginLoad)] == [
        BeginLoad("a", "d", 600),
        BeginLoad("b", "e", 600),
    ]
    assert isinstance(next(e.error for e in effects if isinstance(e, Answer) and e.ask == 2), NoRoom)


def test_a_pin_is_where_the_unit_already_is():
    desk = Desk(devices=("d", "e"))
    desk.resident("a", 900)
    desk.pin("a", 1)
    desk.resident("b", device="e")
    desk.unpin("a", 2)
    desk.unload("a", 3)
    desk.unloaded("a", "d")

    assert Answer(4) in desk.pin("b", 4)
    assert desk.held.residents["b", "e"].pinned


def test_an_unload_while_work_waits_lets_the_unit_come_back():
    desk = Desk()
    desk.resident("a")
    desk.wanted("a")
    assert BeginUnload("a", "d") in desk.unload("a", 1)

    effects = desk.unloaded("a", "d")

    assert Answer(1) in effects and BeginLoad("a", "d", 100) in effects


def test_only_so_many_load_at_once_and_the_next_begins_when_one_ends():
    desk = Desk(loads_at_once=2)
    for unit in "abc":
        desk.wanted(unit)
        desk.inspected(unit, Footprint(100))
    assert [desk.held.residents.get((u, "d")) is not None for u in "abc"] == [True, True, False]

    assert BeginLoad("c", "d", 100) in desk.loaded("b", "d", 1.0)


def test_a_claim_s_bytes_are_not_lent_out_beyond_what_is_coming():
    desk = Desk()
    desk.resident("a", 400)
    desk.resident("c", 300)
    granted(desk.need(need("a", slot="d/1")))
    desk.wanted("b")
    desk.inspected("b", Footprint(600, 0, 1.0))
    desk.now = 5.0
    effects = desk.wake()
    assert BeginUnload("c", "d") in effects or desk.held.residents["a", "d"].yielding

    others = [u for u in "ac" if not desk.held.residents[u, "d"].yielding]

    for unit in others:  # 300 free, 600 claimed, 400 or more coming
        assert granted(desk.need(need(unit, 10))).max_cost == 10


def test_running_sequences_go_on_in_a_unit_that_is_to_leave_and_nobody_joins_them():
    desk = Desk(generative=("g",), memory=1500)
    desk.resident("g", 600)
    first = granted(desk.need(need("g", 5, least=50, want=50)))
    desk.release(Release(first, kv_tokens=50))
    desk.wanted("b")
    desk.inspected("b", Footprint(600, 0, 1.0))
    desk.now = 5.0
    assert not [e for e in desk.wake() if isinstance(e, Left)]

    grant = desk.need(need("g", 0, 5, floor=50, least=50, want=90))[0]

    assert isinstance(grant, Granted) and grant.kv_tokens == 50
    after = desk.release(Release(grant.lease, kv_tokens=0))
    assert after[:2] == [Left("g", "d"), BeginUnload("g", "d")]


def test_sequences_that_the_ledger_does_not_see_keep_their_unit_too():
    desk = Desk(generative=("g",), kv=0)
    desk.resident("g", 600)
    first = granted(desk.need(need("g", 5, least=50, want=50)))
    desk.release(Release(first, kv_tokens=50))
    desk.wanted("b")
    desk.inspected("b", Footprint(600, 0, 1.0))
    desk.now = 5.0

    assert not [e for e in desk.wake() if isinstance(e, BeginUnload)]


def test_who_is_idle_too_long_leaves_when_told_to():
    desk = Desk(idle_unload=30.0)
    desk.resident("a")
    desk.resident("b")
    desk.pin("b", 1)
    assert desk.custody.wake_at == pytest.approx(30.0)
    desk.now = 30.0

    effects = desk.wake()

    assert BeginUnload("a", "d") in effects and len([e for e in effects if isinstance(e, BeginUnload)]) == 1
    assert desk.custody.wake_at == math.inf


def test_a_batch_that_ran_out_of_memory_is_taken_to_need_half_as_much_again():
    desk = Desk()
    desk.resident("a")
    lease = granted(desk.need(need("a", 10)))
    desk.release(Release(lease, out_of_memory=True))

    desk.need(need("a", 10))

    assert desk.held.ledgers["d"].lines()[Line.WORKSPACE] == 15


def test_a_unit_that_no_device_takes_is_told_so():
    desk = Desk()
    desk.held.kinds = {"d": "cpu"}
    desk.wanted("a")

    (told,) = desk.inspected("a", Footprint(100))

    assert "runs on simulated; this server has cpu" in told.failure.message


def test_a_unit_that_cannot_be_inspected_fails_all_who_wait_and_its_pins():
    desk = Desk()
    desk.wanted("a")
    desk.pin("a", 1)
    desk.load("a", 2)

    effects = desk.inspect_failed("a", BROKEN)

    assert sorted(e.ask for e in effects if isinstance(e, Answer)) == [1, 2]
    assert len([e for e in effects if isinstance(e, Unavailable)]) == 1 and not desk.held.pins


def test_a_unit_s_own_idle_time_counts_before_the_settings():
    desk = Desk(idle_unload=30.0, own={"a": {"idle_unload": 5.0}, "b": {"idle_unload": 60.0}})
    for unit in "abc":
        desk.resident(unit)

    left = []
    for desk.now in (5.0, 30.0, 60.0):
        assert desk.custody.wake_at == pytest.approx(desk.now)
        left += [e.unit for e in desk.wake() if isinstance(e, BeginUnload)]

    assert left == ["a", "c", "b"]


def test_what_is_used_again_has_its_idle_time_again():
    desk = Desk(own={"a": {"idle_unload": 5.0}})
    desk.resident("a")
    desk.now = 4.0
    desk.uses("a")
    desk.now = 5.0

    assert desk.wake() == [] and desk.custody.wake_at == pytest.approx(9.0)
