from __future__ import annotations

import re

import pytest

from engine.orders import Action
from tests import simulation
from tests.web.console.conftest import HTML, HTMX, console

pytestmark = pytest.mark.anyio


def state(engine, model: str):
    return next(each for each in engine.view().models if each.id == model)


def pinned(engine, model: str) -> bool:
    return any(r.pinned for r in state(engine, model).residencies)


async def test_without_a_script_one_is_sent_back_to_the_model():
    async with console(base_path="/serai") as seen:
        led = await seen.led("/serai", model="org/a", action="pin")
        assert led == "/serai/console/models/org/a"

        assert pinned(seen.engine, "org/a")
        assert "Unpin" in await seen.page("/serai/console/models/org/a")


async def test_a_pin_is_told_and_can_be_undone():
    async with console() as seen:
        status, text = await seen.do(model="org/a", action="pin")
        version = re.search(r'name="version" value="(\d+)"', text)[1]
        assert (status, "org/a is pinned." in text, "Undo" in text) == (200, True, True)

        status, text = await seen.do(model="org/a", action="unpin", version=version, confirmed=1)

        assert "not pinned any more" in text
        assert not pinned(seen.engine, "org/a")


async def test_who_looked_too_long_ago_is_told_what_happened_since():
    async with console() as seen:
        version = seen.engine.operators.version("org/a")
        await seen.engine.pin("org/a", "user:bob", "mine")

        status, text = await seen.do(model="org/a", action="unload", version=version)

        assert status == 409
        assert "pin by user:bob" in text
        assert f'value="{version + 1}"' in text
        assert pinned(seen.engine, "org/a")


async def test_what_costs_something_is_asked_about_first_and_says_the_cost():
    async with console() as seen:
        await seen.engine.submit(simulation.request("org/a", "hello"))

        status, text = await seen.do(model="org/a", action="unload")
        assert status == 200
        assert "Frees 100.0 MiB" in text and re.search(r"come back: \d+ ms", text)
        assert state(seen.engine, "org/a").state == "loaded"

        async with seen.http.post(
            "/console/do", data={"model": "org/a", "action": "unload"}, headers=HTML
        ) as page:
            assert "<html" in await page.text()

        await seen.do(model="org/a", action="unload", confirmed=1)
        assert state(seen.engine, "org/a").state == "available"


@pytest.mark.parametrize("action", sorted({*Action} - {Action.UNPIN, Action.RESUME}))
async def test_every_action_is_done_and_told(action):
    async with console(drain_limit=2.0) as seen:
        if action is Action.RELOAD:
            await seen.engine.load("org/a")
        said = {"weight": 2} if action is Action.ADJUST else {}
        status, text = await seen.do(model="org/a", action=action, confirmed=1, reason="because", **said)

        assert status == 200, text
        assert 'class="toast"' in text


async def test_pause_and_resume_of_one_and_of_all():
    async with console() as seen:
        await seen.do(model="org/a", action="pause")
        assert [m.id for m in seen.engine.view().models if m.paused] == ["org/a"]
        await seen.do(model="org/a", action="resume")

        _, text = await seen.do(model="*", action="pause")
        assert "Requests of every model are refused" in text
        await seen.do(model="*", action="pause", confirmed=1)
        assert all(m.paused for m in seen.engine.view().models)
        _, text = await seen.do(model="*", action="resume")
        assert "Every model takes requests again" in text
        assert not any(m.paused for m in seen.engine.view().models)


async def test_a_pin_that_leaves_no_room_for_others_asks_first():
    async with console(memory=150 * simulation.MIB) as seen:
        for name in ("org/a", "org/b"):
            await seen.engine.submit(simulation.request(name, "hello"))

        _, text = await seen.do(model="org/a", action="pin")

        assert "no room any more for org/b" in text
        assert not pinned(seen.engine, "org/a")


async def test_a_refusal_of_the_engine_is_told_with_its_reason():
    async with console(memory=50 * simulation.MIB) as seen:
        await seen.do(model="org/a", action="load")
        status, text = await seen.do(model="org/a", action="pin", confirmed=1)

        assert status >= 400
        assert "Pin was not done" in text and 'class="error"' in text


@pytest.mark.parametrize(
    "form",
    [
        {"model": "org/a", "action": "explode"},
        {"model": "none/such", "action": "pin"},
        {"model": "org/a", "action": "pin", "version": "x"},
        {"action": "pin"},
        {},
    ],
)
async def test_a_form_that_makes_no_sense_is_the_callers_mistake(form):
    async with console() as seen:
        status, _ = await seen.do(**form)

    assert 400 <= status < 500


async def test_the_sheet_offers_what_makes_sense_with_what_it_costs():
    async with console() as seen:
        absent = await seen.page("/console/act?model=org/a", HTMX)
        await seen.engine.pin("org/a")
        there = await seen.page("/console/act?model=org/a", HTMX)

    assert re.findall(r'name="action" value="(\w+)"', absent) == ["pin", "load", "pause", "drain", "adjust"]
    assert re.findall(r'name="action" value="(\w+)"', there) == ["unpin", "pause", "reload", "adjust"]
