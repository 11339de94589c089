"""Limits, class and share from the console and over HTTP; units of profiles; several models at once."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession

from tests import simulation
from tests.web.conftest import serving
from tests.web.console.conftest import HTML, HTMX, Console, console
from tests.web.console.test_actions import pinned, state

pytestmark = pytest.mark.anyio

PROFILES = {"half": {"dtype": "float16"}, "short": {"options": {"x": 1}}}


@asynccontextmanager
async def profiled():
    """`org/a` with a profile of its own weights and one that shares them."""
    models = simulation.catalog(simulation.model("org/a", profiles=PROFILES), simulation.model("org/b"))
    async with simulation.engine(models) as engine:
        async with serving(engine) as url, ClientSession(url) as http:
            yield Console(engine, http)


async def test_what_is_adjusted_is_in_force_shown_with_its_origin_and_undone():
    async with console() as seen:
        status, text = await seen.do(
            model="org/a", action="adjust", confirmed=1, max_batch_jobs="3", weight="2"
        )
        page = await seen.page("/console/models/org/a")
        spec = seen.engine.catalog.models["org/a"]
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', text))

        assert (status, "org/a is adjusted." in text) == (200, True)
        assert (spec.limits.max_batch_jobs, spec.weight) == (3, 2.0)
        assert re.search(r"limits\.max_batch_jobs</th><td[^>]*>3</td><td>operator", page)
        assert re.search(r">weight</th><td[^>]*>2.0</td><td>operator", page)
        assert "settings (default)" in page and ">entry<" in page

        assert fields["max_batch_jobs"] == "" and fields["weight"] == ""
        await seen.do(action="adjust", **{key: v for key, v in fields.items() if key != "action"})
        assert seen.engine.catalog.models["org/a"].limits.max_batch_jobs is None


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"max_slots": "0"}, "max_slots: "),
        ({"weight": "a lot"}, "weight: "),
        ({"service_class": "royal"}, "service_class: "),
        ({}, "Say what to adjust"),
    ],
)
async def test_a_value_that_is_none_is_told_by_its_field(form, said):
    async with console() as seen:
        status, text = await seen.do(model="org/a", action="adjust", confirmed=1, **form)

        assert (status, said in text) == (400, True), text
        assert not seen.engine.operators.adjusted("org/a")


async def test_an_adjustment_from_an_older_page_is_refused_and_keeps_what_was_typed():
    async with console() as seen:
        version = seen.engine.operators.version("org/a")
        await seen.engine.pin("org/a", "user:bob")
        status, text = await seen.do(model="org/a", action="adjust", version=version, weight="7")

    assert status == 409
    assert 'name="weight" value="7"' in text and "pin by user:bob" in text


async def test_over_http_null_takes_one_back_and_what_is_left_out_stays():
    async with console() as seen:
        path = "/v1/admin/models/org/a/adjust"
        body = {"limits": {"max_slots": 1, "max_batch_jobs": 4}, "weight": 2, "class": "interactive"}
        async with seen.http.post(path, json=body) as answer:
            first = await answer.json()
        async with seen.http.post(path, json={"limits": {"max_slots": None}, "reason": "enough"}) as answer:
            second = await answer.json()
        async with seen.http.post("/v1/admin/models/org/a/pin", json={"weight": 2}) as answer:
            refused = answer.status
        async with seen.http.post(path, json={"limits": {"max_slots": 0}}) as answer:
            none = answer.status

    all_four = {"max_slots": 1, "max_batch_jobs": 4, "weight": 2.0, "service_class": "interactive"}
    assert first["adjusted"] == {"org/a": all_four}
    assert second["adjusted"] == {"org/a": {k: v for k, v in all_four.items() if k != "max_slots"}}
    assert (refused, none) == (400, 400)


async def test_a_profile_with_weights_of_its_own_is_pinned_apart_from_its_model():
    async with profiled() as seen:
        sheet = await seen.page("/console/act?model=org/a:half", HTMX)
        await seen.do(model="org/a:half", action="pin", confirmed=1)
        there = await seen.page("/console/act?model=org/a:half", HTMX)
        units = {r.unit: r.pinned for r in state(seen.engine, "org/a").residencies if r.weights_bytes}
        whole = await seen.page("/console/act?model=org/a", HTMX)

        assert re.findall(r'name="action" value="(\w+)"', sheet) == ["pin", "load", "adjust"]
        assert re.findall(r'name="action" value="(\w+)"', there) == ["unpin", "adjust"]
        assert units == {"org/a@float16": True}
        assert "org/a:half" in whole and "weights of its own" in whole


async def test_a_profile_that_shares_weights_has_limits_only():
    async with profiled() as seen:
        sheet = await seen.page("/console/act?model=org/a:short", HTMX)
        await seen.do(model="org/a:short", action="adjust", confirmed=1, max_batch_jobs="2")
        page = await seen.page("/console/models/org/a")

    assert re.findall(r'name="action" value="(\w+)"', sheet) == ["adjust"]
    assert "shares its model" in sheet and 'name="weight"' not in sheet
    assert re.search(r"profile short: limits\.max_batch_jobs</th><td[^>]*>2</td><td>operator", page)


async def bulk(seen, action: str, *models: str, headers=HTMX, **form: str) -> tuple[int, str]:
    data = [("action", action), *(("models", model) for model in models), *form.items()]
    async with seen.http.post("/console/bulk", data=data, headers=headers, allow_redirects=False) as answer:
        return answer.status, await answer.text()


async def test_several_models_are_pinned_after_a_look_at_what_each_costs():
    async with console() as seen:
        status, text = await bulk(seen, "pin", "org/a", "org/b")
        versioned = re.findall(r'name="models" value="([^"]+)"', text)
        assert (status, len(versioned), pinned(seen.engine, "org/a")) == (200, 2, False)
        assert "stay on the device" in text

        status, _ = await bulk(seen, "pin", *versioned, confirmed="1", reason="demo", headers=HTML)

        assert status == 303
        assert all(pinned(seen.engine, name) for name in ("org/a", "org/b"))


async def test_of_several_the_one_that_changed_since_is_refused_and_the_others_are_done():
    async with console() as seen:
        _, text = await bulk(seen, "pin", "org/a", "org/b")
        versioned = re.findall(r'name="models" value="([^"]+)"', text)
        await seen.engine.load("org/a", "user:bob")
        status, text = await bulk(seen, "pin", *versioned, confirmed="1")

        assert (status, "load by user:bob" in text) == (409, True)
        assert not pinned(seen.engine, "org/a") and pinned(seen.engine, "org/b")


@pytest.mark.parametrize(
    ("action", "models", "form"),
    [
        ("pin", [], {}),
        ("drain", ["org/a"], {}),
        ("explode", ["org/a"], {}),
        ("pin", ["none/such"], {}),
        ("pin", ["org/a"], {"confirmed": "1"}),
        ("pin", ["org/a"] * 300, {}),
    ],
)
async def test_several_that_make_no_sense_are_the_callers_mistake(action, models, form):
    async with console() as seen:
        status, _ = await bulk(seen, action, *models, **form)

        assert 400 <= status < 500
        assert not pinned(seen.engine, "org/a")
