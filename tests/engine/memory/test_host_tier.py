from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.memory.host_tier import HostTier


def units(tier: HostTier) -> list[str]:
    return [kept.unit for kept in tier]


def test_who_was_used_longest_ago_makes_room():
    tier = HostTier(100)
    for now, unit in enumerate(["a", "b", "c"]):
        assert tier.keep(unit, 30, now) == (True, [])

    assert tier.keep("d", 60, 3.0) == (True, ["a", "b"])

    assert units(tier) == ["c", "d"] and tier.used_bytes == 90


def test_what_is_kept_again_was_used_just_now():
    tier = HostTier(100)
    tier.keep("a", 40, 0.0)
    tier.keep("b", 40, 1.0)
    assert tier.keep("a", 50, 2.0) == (True, [])

    assert tier.keep("c", 40, 3.0) == (True, ["b"])

    assert tier.used_bytes == 90


def test_what_is_larger_than_the_tier_drops_nobody():
    tier = HostTier(100)
    tier.keep("a", 60, 0.0)

    assert tier.keep("b", 101, 1.0) == (False, [])

    assert units(tier) == ["a"]


def test_what_does_not_fit_any_more_leaves_its_old_place_to_be_dropped_by_name():
    tier = HostTier(100)
    tier.keep("a", 60, 0.0)

    assert tier.keep("a", 200, 1.0) == (False, [])
    assert "a" in tier

    tier.drop("a")
    assert tier.used_bytes == 0


def test_what_is_on_its_way_back_is_not_dropped_for_others():
    tier = HostTier(100)
    tier.keep("a", 60, 0.0)
    assert tier.take("a")

    assert tier.keep("b", 50, 1.0) == (False, [])

    assert tier.used_bytes == 60, "the copy reads it until it ends"
    tier.drop("a")
    assert tier.keep("b", 50, 2.0) == (True, [])


def test_weights_are_taken_once():
    tier = HostTier(100)
    tier.keep("a", 60, 0.0)

    assert tier.take("a") and not tier.take("a") and "a" not in tier
    assert not tier.take("b")


def test_a_unit_that_is_evicted_while_its_copy_ends_can_be_taken_again():
    tier = HostTier(100)
    tier.keep("a", 60, 0.0)
    tier.take("a")

    assert tier.keep("a", 60, 1.0) == (True, []) and tier.take("a")


def test_a_tier_without_a_budget_keeps_nothing():
    tier = HostTier(0)

    assert tier.keep("a", 1, 0.0) == (False, []) and units(tier) == []


names = st.sampled_from("abcdef")
steps = st.one_of(
    st.tuples(st.just("keep"), names, st.integers(0, 120)),
    st.tuples(st.just("take"), names, st.just(0)),
    st.tuples(st.just("drop"), names, st.just(0)),
)


@given(st.lists(steps, max_size=60))
def test_it_is_never_above_its_budget_and_names_all_that_it_drops(steps):
    tier = HostTier(100)
    there: dict[str, int] = {}
    leaving: set[str] = set()
    for now, (step, unit, nbytes) in enumerate(steps):
        match step:
            case "keep":
                kept, dropped = tier.keep(unit, nbytes, now)
                assert kept or not dropped
                assert not leaving & set(dropped)
                for name in dropped:
                    del there[name]
                if kept:
                    there[unit] = nbytes
                    leaving.discard(unit)
            case "take":
                assert tier.take(unit) == (unit in there and unit not in leaving)
                leaving |= {unit} & set(there)
            case "drop":
                tier.drop(unit)
                there.pop(unit, None)
                leaving.discard(unit)
        assert {kept.unit: kept.nbytes for kept in tier} == there
        assert tier.used_bytes == sum(there.values()) <= tier.budget_bytes
