"""Adapters in the console: rows of their own, acted on as models are, and told of where their model is."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession

from engine.errors import EngineError
from tests import simulation
from tests.engine.test_persistence import opened
from tests.web.conftest import serving
from tests.web.console.conftest import HTML, HTMX, Console, Seen
from tests.web.console.test_actions import state

pytestmark = pytest.mark.anyio

LORAS = {"legal": {"sources": [{"directory": "/"}]}, "medical": {"sources": [{"directory": "/"}]}}


OPTIONS = {"lora_seconds": 0.01, "load_seconds": 0.01}
MODELS = simulation.catalog(simulation.model("org/a", loras=LORAS, options=OPTIONS))
"""`org/a` with two adapters."""


@asynccontextmanager
async def adapting(**settings: object):
    async with simulation.engine(MODELS, **settings) as engine:
        async with serving(engine) as url, ClientSession(url) as http:
            yield Console(engine, http)


def row(page: str, adapter: str) -> str:
    return re.search(rf'<tr id="adapter-{adapter}">.*?</tr>', page, re.DOTALL)[0]


def offered(text: str) -> list[str]:
    return re.findall(r'name="action" value="(\w+)"', text)


async def test_an_adapter_is_a_row_with_its_state_bytes_and_what_may_be_done():
    async with adapting() as seen:
        absent = row(await seen.page("/console/models/org/a"), "legal")
        status, said = await seen.do(model="org/a:legal", action="load")
        page = await seen.page("/console/models/org/a")

    assert (status, "org/a:legal is loaded." in said) == (200, True)
    assert "<td>available</td>" in absent and offered(absent) == ["pin", "load"]
    assert "<td>loaded</td>" in row(page, "legal") and "10.0 MiB" in row(page, "legal")
    assert offered(row(page, "legal")) == ["pin", "unload"]
    assert "<td>available</td>" in row(page, "medical")
    assert Seen(page).forbidden == []


async def test_a_pinned_adapter_is_unpinned_by_its_form_and_by_undo_without_a_script_too():
    async with adapting(base_path="/serai") as seen:
        led = await seen.led("/serai", model="org/a:legal", action="pin")
        assert led == "/serai/console/models/org/a"
        there = row(await seen.page("/serai/console/models/org/a"), "legal")
        version = re.search(r'name="version" value="(\d+)"', there)[1]

        form = {"model": "org/a:legal", "action": "unpin", "version": version}
        async with seen.http.post("/serai/console/do", data=form, headers=HTMX) as answer:
            text = await answer.text()

    assert "<td>loaded, pinned</td>" in there and offered(there) == ["unpin"]
    assert "org/a:legal is not pinned any more." in text
    assert re.search(r'name="model" value="org/a:legal"', text), "undo is of the adapter"


async def test_the_dialog_of_a_model_has_its_adapters_and_each_has_its_own():
    async with adapting() as seen:
        whole = await seen.page("/console/act?model=org/a", HTMX)
        absent = await seen.page("/console/act?model=org/a:legal", HTMX)
        await seen.do(model="org/a:legal", action="pin", confirmed=1)
        there = await seen.page("/console/act?model=org/a:legal", HTMX)

    assert 'aria-label="Load org/a:legal"' in whole and 'aria-label="Pin org/a:medical"' in whole
    assert offered(absent) == ["pin", "load"] and "org/a comes with it" in absent
    assert offered(there) == ["unpin"]
    assert "adjust" not in there


async def test_the_cost_of_unloading_says_that_a_pinned_adapter_forbids_it():
    async with adapting() as seen:
        await seen.do(model="org/a:legal", action="pin", confirmed=1)

        text = await seen.page("/console/act?model=org/a", HTMX)
        status, refused = await seen.do(model="org/a", action="unload", confirmed=1)

    assert text.count("It will be refused while org/a:legal is pinned; unpin that first.") == 2
    assert "100.0 MiB stay on the device" in text, "what a pin holds is the model's own"
    assert "Frees" not in text and 'aria-label="Unpin org/a:legal"' in text
    assert (status, "org/a:legal is pinned" in refused) == (400, True)


async def test_the_page_of_an_adapter_is_its_models_page_at_that_adapter():
    async with adapting(base_path="/serai") as seen:
        path = "/serai/console/models/org/a:legal"
        async with seen.http.get(path, headers=HTML, allow_redirects=False) as answer:
            assert answer.status == 303
            assert answer.headers["Location"] == "/serai/console/models/org/a#adapter-legal"
        assert 'id="adapter-legal"' in await seen.page(path)


async def test_what_is_done_to_whole_models_is_refused_for_an_adapter():
    async with adapting() as seen:
        status, text = await seen.do(model="org/a:legal", action="pause")

        assert (status, "Pause was not done" in text) == (400, True)
        assert not state(seen.engine, "org/a").paused


async def test_acts_on_adapters_are_among_the_acts_on_their_model_with_how_those_were(tmp_path):
    async with opened(tmp_path, models=MODELS) as engine, serving(engine) as url, ClientSession(url) as http:
        seen = Console(engine, http)
        await seen.engine.load("org/a")
        await seen.engine.pin("org/a:legal", "ann", "demo")
        with pytest.raises(EngineError):
            await seen.engine.unload("org/a:legal", "bob")
        acts = await seen.engine.operators.history(9, "org/a")
        page = await seen.page("/console/models/org/a")
        audit = await seen.page("/console/audit?of=org/a")

    assert [(a.target, a.action, a.before, a.after) for a in acts] == [
        ("org/a:legal", "unload", "loaded, pinned", "loaded, pinned"),
        ("org/a:legal", "pin", "available", "loaded, pinned"),
        ("org/a", "load", "available", "loaded"),
    ]
    assert re.search(r"<td>pin <small[^>]*>org/a:legal</small></td><td>demo", page)
    assert audit.count("org/a:legal") == 2


async def test_the_playground_offers_a_model_with_each_of_its_adapters():
    async with adapting() as seen:
        text = await seen.page("/console/playground")

    assert "empty takes the model's own, where it has some" in text
    assert re.findall(r'<option value="(org/a[^"]*)"', text) == ["org/a", "org/a:legal", "org/a:medical"]


async def test_what_is_in_force_names_the_adapters_and_no_fields_of_theirs():
    async with adapting() as seen:
        text = await seen.page("/console/models/org/a")

    assert re.search(r'loras</th><td class="wrap">legal, medical</td>', text)
