"""A browser that asks for a page that is not there gets a page; a program is told as ever."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from engine.config import Settings
from tests.web.conftest import serving
from tests.web.fakes import FakeEngine
from web.wire import forms

pytestmark = pytest.mark.anyio

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/console/quues", 404, "There is nothing at"),
        ("/<script>", 404, "&lt;script&gt;"),
        ("/console/requests/gone", 404, "gone"),
        ("/console/do", 405, "does not take GET"),
        ("/v1/admin/audit?limit=x", 400, "limit is a whole number"),
    ],
)
async def test_a_browser_is_shown_what_is_wrong_and_the_way_back(http, path, status, said):
    async with http.get(path, headers={"Accept": BROWSER}) as answer:
        page = await answer.text()

    assert (answer.status, answer.content_type) == (status, "text/html")
    assert said in page and 'href="/"' in page and "<script" not in page
    assert answer.headers["X-SIE-Request-ID"] in page
    assert answer.headers["X-SIE-Error-Code"] in page and "Accept" in answer.headers["Vary"]


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/json, text/html;q=0.9", None])
async def test_a_program_is_told_as_ever(http, accept):
    headers = {"Accept": accept} if accept else {}
    async with http.get("/console/quues", headers=headers, skip_auto_headers=["Accept"]) as answer:
        assert (await answer.json())["detail"]["code"] == "NOT_FOUND"


async def test_what_goes_into_a_page_or_is_no_look_is_no_page(http):
    async with http.get("/nothing", headers={"Accept": BROWSER, "HX-Request": "true"}) as panel:
        assert panel.content_type == "application/json"
    async with http.post("/nothing", headers={"Accept": BROWSER}) as sent:
        assert sent.content_type == "application/json"


async def test_the_way_back_is_below_the_base_path():
    async with serving(FakeEngine(Settings(base_path="/serai"))) as url, ClientSession(url) as http:
        async with http.get("/serai/nothing", headers={"Accept": BROWSER}) as answer:
            assert 'href="/serai/"' in await answer.text()


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        (BROWSER, True),
        ("TEXT/HTML", True),
        ("text/html;q=0", False),
        ("text/html;q=0.2, application/json;q=0.3", False),
        ("text/html;q=x", False),
        (";;,,;q=", False),
        ("", False),
        (None, False),
    ],
)
def test_a_page_is_preferred_by_whoever_says_so(accept, page):
    assert forms.prefers_page(accept) is page
