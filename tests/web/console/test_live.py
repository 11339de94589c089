"""The stream of one tab: what it has missed, what changes, and that it costs nothing when nobody watches."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager

import anyio
import orjson
import pytest
from aiohttp import ClientSession

from engine.access.principals import Role
from tests import simulation
from tests.web.conftest import serving
from tests.web.console.conftest import HTML, console
from web.app import make_app
from web.console import hub as hubs
from web.console.hub import HUB, Hub

pytestmark = pytest.mark.anyio


class Stream:
    def __init__(self, content) -> None:
        self._content = content
        self.id = ""
        self.bytes = 0

    async def event(self, name: str):
        """The next event of this name, and its data."""
        with anyio.fail_after(10):
            while True:
                raw = await self._content.readuntil(b"\n\n")
                self.bytes += len(raw)
                fields = dict(line.split(": ", 1) for line in raw.decode().splitlines() if ": " in line)
                self.id = fields.get("id", self.id)
                if fields["event"] == name:
                    return orjson.loads(fields["data"]) if fields.get("data") else None


@asynccontextmanager
async def watching(http: ClientSession, query: str = "rows=1", **headers: str):
    async with http.get(f"/console/live?{query}", headers=headers) as answer:
        assert answer.content_type == "text/event-stream"
        yield Stream(answer.content)


async def test_a_tab_is_told_everything_and_then_what_changes():
    async with console() as seen, watching(seen.http) as stream:
        first = await stream.event("cells")
        number = next(int(k[1:]) for k, v in first.items() if k.startswith("m") and "-" not in k)
        assert first[f"m{number}"] == ["available", 0, 0]

        await seen.engine.pin("org/a")
        later = await stream.event("cells")
        while later.get("m0") != ["loaded", 1, 0]:
            later |= await stream.event("cells")

    assert later["m0-bytes"] == "100.0 MiB"
    assert "m1" not in later and len(later) < len(first) / 2


async def test_a_tab_that_comes_back_is_told_only_what_it_has_missed():
    async with console() as seen:
        async with watching(seen.http) as stream:
            whole = await stream.event("cells")
        await seen.engine.pin("org/b")
        async with watching(seen.http, **{"Last-Event-ID": stream.id}) as stream:
            missed = await stream.event("cells")
            while missed.get("m1") != ["loaded", 1, 0]:
                missed |= await stream.event("cells")
        async with watching(seen.http, **{"Last-Event-ID": "another-12"}) as stream:
            again = await stream.event("cells")

    assert "m0" not in missed
    assert again.keys() == whole.keys()


async def test_a_page_and_its_stream_fit_together():
    async with console() as seen:
        text = await seen.page("/")
        query = text.partition("/console/live?")[2].partition('"')[0].replace("&amp;", "&")
        await seen.engine.pin("org/c")
        async with watching(seen.http, query) as stream:
            missed = await stream.event("cells")
            while missed.get("m2") != ["loaded", 1, 0]:
                missed |= await stream.event("cells")
            await stream.event("cue-models")

    assert "m0" not in missed


async def test_panels_are_cued_when_they_would_look_different():
    async with (
        console() as seen,
        watching(seen.http, "cues=requests,audit,model:org/a&series=server") as stream,
    ):
        await stream.event("cells")
        await seen.engine.submit(simulation.request("org/a", "hello"))
        await stream.event("cue-model")
        await stream.event("cue-requests")
        points = await stream.event("points")
        await seen.engine.pin("org/a")
        await stream.event("cue-audit")

    assert points["series"] == "server"
    assert len(points["columns"]) == 4


async def test_nobody_looks_while_nobody_watches(engine, monkeypatch):
    looks: list[float] = []
    view = engine.view
    monkeypatch.setattr(engine, "view", lambda: looks.append(time.monotonic()) or view())
    async with serving(engine) as url, ClientSession(url) as http:
        await anyio.sleep(0.1)
        before = len(looks)
        await anyio.sleep(2 * hubs.FRAME)
        assert len(looks) == before

        async with watching(http) as stream:
            await stream.event("cells")
            await anyio.sleep(2 * hubs.FRAME)
            assert len(looks) > before
        await anyio.sleep(2 * hubs.FRAME)
        after = len(looks)
        await anyio.sleep(2 * hubs.FRAME)
        assert len(looks) == after


async def test_ten_tabs_cost_no_more_looks_than_one(engine, monkeypatch):
    looks = []
    view = engine.view
    monkeypatch.setattr(engine, "view", lambda: looks.append(1) or view())
    async with serving(engine) as url, ClientSession(url) as http, anyio.create_task_group() as tasks:

        async def watch() -> None:
            async with watching(http) as stream:
                with anyio.move_on_after(2.2):
                    while True:
                        await stream.event("cells")

        for _ in range(10):
            tasks.start_soon(watch)

    assert len(looks) <= 2.2 / hubs.FRAME * 2 + 3


async def test_viewers_do_not_keep_the_server_from_stopping(engine):
    async with ClientSession() as http:
        with anyio.fail_after(3):
            async with serving(engine) as url:
                answer = await http.get(f"{url}/console/live")
                await answer.content.readuntil(b"\n\n")
        answer.close()


async def test_a_tab_without_news_hears_a_beat(guarded, browser):
    guarded.user("ann", Role.VIEWER)
    from tests.web.access.conftest import log_in

    await log_in(browser, "ann")
    async with watching(browser) as stream:
        await stream.event("cells")
        await stream.event("beat")


async def test_a_look_that_fails_does_not_end_the_console(engine, monkeypatch):
    app = make_app(engine)
    hub: Hub = app[HUB]
    monkeypatch.setattr(hubs, "ASLEEP", 0.01)
    view = engine.view
    broken = [True, True]

    def look():
        if broken:
            broken.pop()
            raise RuntimeError("no")
        return view()

    monkeypatch.setattr(engine, "view", look)
    with anyio.move_on_after(6 * hubs.FRAME):
        await hub.run()

    assert not broken
    assert hub.frame >= 1


async def test_charts_get_what_the_rings_hold():
    async with console() as seen:
        async with seen.http.get("/console/series?of=server&span=24h") as answer:
            assert (await answer.json())["columns"] == [[], [], [], []]
        async with seen.http.get("/console/series?of=server&span=1y", headers=HTML) as answer:
            assert answer.status == 400
