from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.memory.rules import EvictionPolicy
from replay.comparison import compare, late
from replay.cost import cost, idle_share
from replay.most import fails
from replay.scaling import Method
from replay.search import excess, pins, smallest, tunings
from replay.trace import BadTrace, merged
from replay.twin.results import Ran
from replay.twin.twin import simulate
from replay.whatif import MOST, Added, Change
from tests.replay.small import GIB, server, traffic, unit


def test_only_what_is_said_differs():
    on = server()
    assert Change().server(on) == on and str(Change()) == "as it is"
    change = Change(vram=8 * GIB, speed=0.5, devices=3, pin=("a",), policy=EvictionPolicy.LRU, headroom=0.1)

    made = change.server(replace(on, pins=("b",), curves={("a", "simulated:0"): {"4": (5.0, 0.1, 3)}}))

    assert [(c.name, c.memory_bytes, c.speed) for c in made.cards] == [
        (f"simulated:{n}", 8 * GIB, 0.5) for n in range(3)
    ]
    assert made.pins == ("b", "a") and made.headroom == 0.1 and made.memory.policy is EvictionPolicy.LRU
    assert {device for _, device in made.curves} == {"simulated:0", "simulated:1", "simulated:2"}
    assert Change(unpin=("b",)).server(replace(on, pins=("b",))).pins == ()
    assert Change(window=0.02).server(on).scheduling.window_share == 0.02
    told = "--vram 8.0GiB --speed 0.5 --devices 3 --headroom 0.1 --pin a --policy lru"
    assert str(change) == told


@pytest.mark.parametrize(
    "change", [Change(pin=("x",)), Change(unpin=("x",)), Change(add=(Added("n", "x", 1),))]
)
def test_a_model_that_is_not_there_is_named_with_those_that_are(change):
    with pytest.raises(BadTrace, match="saw nothing of x, only of a, b"):
        change.server(server())


def test_an_added_model_is_asked_for_as_the_one_it_is_like():
    on = server()
    sent = traffic(on, rate=2, seconds=300, a=3, b=1)
    change = Change(add=(Added("n", "b", 1.5),))

    more = change.asked(sent, 0)
    results = simulate(change.server(on), more)

    new = results.answers.asked("n")
    assert new.sum() == pytest.approx(450, rel=0.2) and (~new).sum() == len(sent)
    assert (np.diff(more.trace.arrived) >= 0).all()
    assert results.answers.answered.mean() > 0.99
    with pytest.raises(BadTrace, match="Nothing asks for"):
        sent.with_model("n", "zzz", 1.0, 0)


def test_a_faster_card_answers_sooner_and_a_slower_one_later():
    on = server()
    sent = traffic(on, rate=2, seconds=60)
    p50 = {s: np.median(simulate(Change(speed=s).server(on), sent).answers.latency) for s in (0.5, 1.0, 2.0)}
    assert p50[2.0] < 0.6 * p50[1.0] and p50[0.5] > 1.9 * p50[1.0]


def test_more_traffic_is_scaled_by_the_method_that_is_named():
    sent = traffic(server())
    assert len(Change(traffic=3.0, method=Method.DUP).asked(sent, 0)) == 3 * len(sent)
    warped = Change(traffic=2.0, method=Method.WARP).asked(sent, 0)
    assert warped.trace.span == pytest.approx(sent.trace.span / 2)


def test_of_traffic_that_would_never_end_its_busiest_part_is_simulated():
    """500 requests, most of them in the last minute; 1,000 times as many would take minutes."""
    on = server()
    calm, busy = traffic(on, rate=0.2, seconds=1000), traffic(on, rate=5, seconds=60)
    late = replace(busy.trace, arrived=busy.trace.arrived + 1000)
    sent = replace(calm, trace=merged([calm.trace, late]))
    change = Change(traffic=1000.0)

    part = change.part(sent)

    assert 100 < len(part) <= MOST / 1000 and part.trace.rate > 4
    assert any("only the busiest" in note for note in part.notes)
    assert Change(traffic=1000.0, method=Method.WARP).part(sent) is sent  # no more of them, only sooner
    assert Change(traffic=100.0).part(sent) is sent
    with pytest.raises(BadTrace, match="the busiest 10 s would have"):
        replace(change, add=(Added("n", "a", 10_000.0),)).part(sent)


def test_a_second_card_takes_its_part():
    on = server(unit("a", per_batch=0.4))
    sent = traffic(on, rate=20, seconds=60)
    busy = simulate(Change(devices=2).server(on), sent).busy
    assert {device for _, device in busy} == {"simulated:0", "simulated:1"}


def three() -> tuple:
    """Three models of which two fit, one of them asked for seldom."""
    on = server(unit("a"), unit("b"), unit("c"), memory=int(3.1 * GIB))
    return on, traffic(on, rate=2, seconds=200, a=5, b=5, c=1)


def test_what_a_pin_gives_its_own_it_takes_from_the_others():
    on, sent = three()
    found, _ = compare((on, sent), (Change(pin=("c",)).server(on), sent))

    (price,) = found.prices
    assert price.unit == "c"
    without, pinned = price.own_cold
    assert pinned == 0 and without > 0.3
    without, pinned = price.others_cold
    assert pinned > without
    assert "a, standard" in price.hurt or "b, standard" in price.hurt
    assert {d.name for d in found.differences} == {"a, standard", "b, standard", "c, standard"}
    swapped = next(d for d in found.differences if d.name.startswith("c"))
    assert swapped.loads_before > 0 and swapped.loads_after == 0


def spelled() -> tuple:
    """Three models that fit, on a card that is slow now and then."""
    on = server(unit("a"), unit("b"), unit("c"), memory=8 * GIB)
    slow = tuple(1.0 + 0.5 * (n % 7) for n in range(90))
    on = replace(on, cards=(replace(on.cards[0], spells=slow),))
    return on, traffic(on, rate=4, seconds=200)


def test_a_pin_that_changes_nothing_has_no_price():
    on, sent = spelled()
    found, _ = compare((on, sent), (Change(pin=("c",)).server(on), sent))
    assert found.prices == () and "the pin of c changes nothing" in found.notes
    assert all(each.before == each.after for each in found.differences)


def test_a_pin_is_priced_against_the_server_that_the_table_shows():
    on, sent = spelled()
    on = replace(on, resident=("a", "b"))  # c comes with its pin, at another moment
    found, now = compare((on, sent), (Change(pin=("c",)).server(on), sent))
    (price,) = found.prices
    assert price.late == (late(simulate(on, sent), on), late(now, on))
    assert price.own_cold[0] > price.own_cold[1] == 0


def test_memory_for_all_ends_the_loads():
    on, sent = three()
    found, now = compare((on, sent), (Change(vram=8 * GIB).server(on), sent))
    assert now.swaps() == 0 and all(d.loads_before > 0 for d in found.differences)
    assert found.fails is None


def test_pins_are_recommended_only_where_they_save_more_than_they_take():
    on, sent = three()
    steps = pins(on, sent, 0)

    before = sum(excess(simulate(on, sent, 0), on).values())
    pinned = Change(pin=tuple(s.unit for s in steps)).server(on)
    after = sum(excess(simulate(pinned, sent, 0), on).values())
    assert after == pytest.approx(before - sum(s.saved for s in steps))
    assert all(s.saved > 0 and s.per_gib == pytest.approx(s.saved) for s in steps)
    roomy = Change(vram=8 * GIB).server(on)
    assert pins(roomy, sent, 0) == []


def test_a_tuning_is_told_only_when_it_is_better():
    on, sent = three()
    assert all(t.after < t.before for t in tunings(on, sent, 0))


def test_the_smallest_card_holds_all_that_is_needed_and_the_next_smaller_does_not():
    on, sent = three()
    one, two = smallest(on, sent, 0, k=1.0)

    assert (one.cards, two.cards) == (1, 2) and two.one_lost and not one.one_lost
    assert "c, standard" in one.smaller or "b, standard" in one.smaller
    held = Change(vram=one.memory_bytes, headroom=0.2).server(on)
    assert fails(held, sent, 0) is None
    below = Change(vram=int(one.memory_bytes / 2**0.5), headroom=0.2).server(on)
    assert fails(below, sent, 0) is not None
    assert two.memory_bytes >= one.memory_bytes


def test_cost_is_price_over_what_was_served():
    on = server(unit("a"), unit("b"), memory=4 * GIB)
    sent = traffic(on, rate=2, seconds=300)
    results = simulate(on, sent, keep=True)

    found = cost(on, sent, results, 8.0, price=3.6, seed=0)

    assert found.per_million == pytest.approx(3.6 * 1e6 / 3600 / sent.trace.rate)
    assert found.per_million_at_knee == pytest.approx(3.6 * 1e6 / 3600 / 8)
    assert found.cards_apart == 2 and found.per_million_apart == pytest.approx(2 * found.per_million)
    assert 0 < found.idle_hours < 24


def test_a_card_is_idle_when_nothing_runs_anywhere():
    results = simulate(server(), traffic(server(), seconds=10))
    ran = [Ran(b, s, "a", "d", "d/0", 1, ()) for b, s in [(0, 4), (1, 2), (3, 3), (8, 1)]]
    assert idle_share(replace(results, ran=tuple(ran)), span=10) == pytest.approx(0.3)
