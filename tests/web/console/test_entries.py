"""Entries of the catalogue from the console and over HTTP, and names that are made to hurt a page."""

from __future__ import annotations

import html
import json
import logging
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession

from tests.engine.test_changeover import entry, served
from tests.engine.test_own_entries import TEXT
from tests.web.conftest import serving
from tests.web.console.conftest import Console, console

pytestmark = pytest.mark.anyio

ENTRIES = "/v1/admin/catalog/entries"


@asynccontextmanager
async def filed(tmp_path):
    """A console over a catalogue that is read from files."""
    (tmp_path / "files").mkdir()
    async with served(tmp_path / "files", entry("org/a"), state_dir=tmp_path / "state") as engine:
        async with serving(engine) as url, ClientSession(url) as http:
            yield Console(engine, http)


async def send(seen: Console, **form: str) -> tuple[int, str]:
    async with seen.http.post("/console/entries", data=form, allow_redirects=False) as answer:
        return answer.status, html.unescape(await answer.text())


async def test_an_entry_is_looked_at_added_changed_and_removed(tmp_path):
    async with filed(tmp_path) as seen:
        status, text = await send(seen, act="look", entry=TEXT)
        assert (status, "org/new would be new" in text, "Add org/new" in text) == (200, True, True)
        assert "org/new" not in seen.engine.catalog.models

        assert (await send(seen, act="add", entry=TEXT, reason="demo"))[0] == 303
        page = await seen.page("/console/entries?model=org/new")
        assert "org/new" in seen.engine.catalog.models
        assert "id: org/new" in page and "Remove org/new" in page

        _, text = await send(seen, act="look", entry=TEXT + "weight: 3\n")
        assert "change at once, without a load" in text and "Replace org/new" in text

        assert (await send(seen, act="remove", model="org/new"))[0] == 303
        assert "org/new" not in seen.engine.catalog.models


async def test_every_complaint_is_told_with_its_line_and_what_was_typed_stays(tmp_path):
    async with filed(tmp_path) as seen:
        status, text = await send(seen, act="add", entry=TEXT + "wieght: 2\nmax_tokens: <b>\n")

    assert status == 422
    assert "9: wieght: no key is called 'wieght'" in text and "10: max_tokens" in text
    assert "# of my own" in text


async def test_over_http_too(tmp_path):
    async with filed(tmp_path) as seen:
        http = seen.http
        async with http.post(ENTRIES, json={"entry": TEXT, "dry_run": True}) as answer:
            looked = await answer.json()
        async with http.post(ENTRIES, json={"entry": TEXT + "weight: 0\n"}) as answer:
            wrong = answer.status, await answer.json()
        async with http.post(ENTRIES, json={"entry": TEXT}) as answer:
            added = answer.status, await answer.json()
        async with http.get("/v1/admin/catalog") as answer:
            listed = await answer.json()
        async with http.delete(f"{ENTRIES}/org/a") as answer:
            others = answer.status
        async with http.delete(f"{ENTRIES}/org/new?reason=enough") as answer:
            removed = await answer.json()

    assert looked["added"] == ["org/new"] and looked["path"].endswith("org__new.yaml")
    assert wrong[0] == 422 and wrong[1]["detail"]["complaints"][0].startswith("9: weight: ")
    assert (added[0], added[1]["added"], listed["added_here"]) == (201, ["org/new"], ["org/new"])
    assert (others, removed["removed"]) == (400, ["org/new"])


NASTY = "\"><script>alert(1)</script><b id=nasty>'&☃"


async def test_what_operators_and_callers_wrote_is_text_on_every_page(tmp_path):
    async with filed(tmp_path) as seen:
        said = json.dumps(NASTY)
        quoted = TEXT + f"description: {said}\nnotes: {said}\nlabels: {{{said}: {said}}}\n"
        await seen.engine.operators.add_entry(quoted, f"user:{NASTY}", NASTY)
        await seen.engine.pin("org/new", f"user:{NASTY}", NASTY)
        logging.getLogger("engine.operators").error("%s: %s", "org/new", NASTY)
        paths = ["/", "/console/audit", "/console/models/org/new", "/console/playground", "/console/queues"]
        paths += ["/console/act?model=org/new", "/console/requests", "/console/entries?model=org/new"]
        for path in (*paths, f"/?q={NASTY}", f"/console/audit?of={NASTY}"):
            text = await seen.page(path)
            assert "<script>alert" not in text and "<b id=nasty" not in text, path
        mine = html.unescape(await seen.page("/console/models/org/new"))

        assert mine.count(NASTY) >= 4


async def test_a_models_page_has_the_last_lines_of_its_log_and_no_others(caplog):
    caplog.set_level(logging.INFO, "engine")
    async with console() as seen:
        log = logging.getLogger("engine.loading")
        await seen.engine.load("org/a")
        log.warning("%s was left on %s", "org/a#2", "cuda:0")
        log.info("a line of nobody")
        try:
            raise ValueError("what the caller sent")
        except ValueError:
            log.exception("%s did not unload cleanly", "org/a@float16")
        mine = await seen.page("/console/models/org/a")
        other = await seen.page("/console/models/org/b")

    assert "loaded unit=org/a device=" in mine and "web.ended" not in mine
    assert "org/a#2 was left on cuda:0" in mine
    assert "org/a@float16 did not unload cleanly: ValueError" in mine and "what the caller sent" not in mine
    assert "a line of nobody" not in mine
    assert "was left on" not in other and "Nothing since the start." in other


async def test_a_log_holds_so_many_lines_of_a_model_and_none_of_one_that_is_gone():
    from web.console.tail import KEPT, Tail, listen, stop

    models = {"a", "b"}
    tail = Tail(lambda: models)
    listen(tail)
    try:
        for n in range(KEPT + 50):
            logging.getLogger("engine.x").error("%s: %d", "a", n)
        logging.getLogger("engine.x").error("%s: %d", "b", 1)
    finally:
        stop(tail)
    models.discard("b")
    tail.forget(models)

    assert len(tail.of("a")) == KEPT and tail.of("a")[0].text == f"a: {KEPT + 49}"
    assert tail.of("b") == ()
