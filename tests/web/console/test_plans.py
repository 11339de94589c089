"""Plans as pages: what is asked, what the child finds, and how several stand side by side."""

from __future__ import annotations

import json

import anyio
import pytest

from engine.errors import InvalidInput
from replay.knee import Knee
from tests.web.console.conftest import HTML
from tests.web.console.test_recordings import monday, over, post, recorded
from web.console import plans_figures, plans_form
from web.console.errands import Errand

pytestmark = pytest.mark.anyio


async def test_a_plan_says_its_verdict_its_knee_and_its_price_and_stands_beside_another(tmp_path):
    # A card so slow is full at a low rate: the ramp is over soon.
    async with recorded(tmp_path) as seen:
        await monday(seen)
        form = {
            "recording": "monday",
            "vram": "150MiB",
            "speed": "0.001",
            "pin": "a",
            "price": "2",
            "label": "tight",
            "hours": "0.1",
        }
        status, where = await post(seen, "plans", act="start", **form)
        assert status == 303, where
        assert (await post(seen, "plans", act="start", recording="monday"))[0] == 409
        text = await over(seen, where)
        assert "Redundancy" in text and "a million requests, now" in text, text
        assert "cards of 150MiB, 0.001 times the speed, pins a" in text and "The price of each pin" in text
        async with seen.http.get(f"{where}/plan.json") as answer:
            found = json.loads(await answer.text())
        assert found["change"] == "--vram 150.0MiB --speed 0.001 --pin a"
        assert Knee(**found["study"]["capacity"]["knee"]).sweeps == 3
        assert {each["unit"] for each in found["study"]["memory"]} == {"a"}  # no room for b beside the pin

        name = where.rpartition("/")[2]
        text = await seen.page(f"/console/plans/compare?of={name}&of={name}")
        assert "tight" in text and "p99 of a, standard" in text
        listed = await seen.page("/console/plans")
        assert "tight" in listed and found["from"]["badge"] in listed
        assert (await post(seen, "plans", act="delete", id=name))[0] == 303
        async with seen.http.get(where, headers=HTML) as answer:
            assert answer.status == 404


async def test_a_plan_is_given_up_and_its_child_is_gone(tmp_path):
    async with recorded(tmp_path) as seen:
        await monday(seen, 3)
        _, where = await post(seen, "plans", act="start", recording="monday", search="1")
        with anyio.fail_after(30):
            assert await post(seen, f"{where.removeprefix('/console/')}/stop") == (303, where)
        assert "It was given up" in await seen.page(where)
        assert (await post(seen, "plans/none/stop"))[0] == 404


async def test_a_plan_that_fails_says_why(tmp_path):
    async with recorded(tmp_path) as seen:
        await monday(seen, 1)
        _, where = await post(seen, "plans", act="start", recording="monday", pin="a")
        assert "saw nothing of a, only of b" in await over(seen, where)


@pytest.mark.parametrize(
    "form",
    [
        {"vram": "much"},
        {"speed": "0"},
        {"speed": "x"},
        {"devices": "1.5"},
        {"devices": "65"},
        {"window": "2"},
        {"headroom": "1"},
        {"policy": "magic"},
        {"method": "magic"},
        {"traffic": "-1"},
        {"traffic": "nan"},
        {"traffic": "inf"},
        {"traffic": "1e308"},
        {"add_model": "n=like:a,rate=nan"},
        {"add_model": "n=like:a,rate=x"},
        {"seed": "x"},
        {"seed": "9" * 400},
        {"seed": "-1"},
        {"pin": "none/such"},
        {"server": "/etc/passwd"},
        {"add_model": "new"},
        {"price": "0"},
        {"hours": "0"},
    ],
)
async def test_a_what_if_that_makes_no_sense_is_refused_before_anything_starts(tmp_path, form):
    async with recorded(tmp_path) as seen:
        await monday(seen, 1)
        status, text = await post(seen, "plans", act="start", recording="monday", **form)
        assert status == 400 and 'role="alert"' in text, text
        assert not (tmp_path / "plans").exists()


def test_a_traffic_that_is_no_number_is_told_what_it_takes():
    with pytest.raises(InvalidInput, match=r"traffic is a number from 0\.001 to 1000, not 'some'"):
        plans_form.read({"traffic": "some"})


def test_the_form_becomes_the_options_of_the_command():
    asked = plans_form.read(
        {
            "vram": "16GiB",
            "pin": "a, b ,",
            "traffic": "2",
            "add_model": "n=like:a,rate=3",
            "search": "1",
            "method": "dup",
        }
    )
    assert asked == ["--vram=16GiB", "--pin=a,b", "--traffic=2", "--add-model=n=like:a,rate=3", "--search"]


def test_a_curve_is_the_median_of_its_sweeps_and_has_no_value_beyond_them():
    points = [
        {"sweep": sweep, "offered": rate, "served": rate, "p99": height, "holds": True}
        for sweep, lifts in enumerate((1.0, 2.0, 3.0))
        for rate, height in ((1.0, lifts), (3.0, 2 * lifts))
    ] + [{"sweep": 0, "offered": 9.0, "served": 9.0, "p99": None, "holds": False}]
    assert plans_figures._median(points, [0.5, 1.0, 2.0, 3.0]) == [None, 2.0, 3.0, 4.0]


def test_pins_that_were_found_join_those_that_were_asked():
    errand = Errand("1", "plan", "monday", "ann", 0.0, {"pin": "a", "vram": "1GiB"})
    result = {"study": {"pins": [{"unit": "b"}, {"unit": "a"}]}}
    assert plans_figures.with_pins(errand, result) == {"vram": "1GiB", "pin": "a,b", "recording": "monday"}
