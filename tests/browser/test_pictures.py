"""The pictures of the documentation: SERAI_IMAGES=docs/images writes them there, else nobody keeps them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.asking import MINILM, NER, RERANKER, WRITER, encode, extract, score
from tests.acceptance.serving import serving
from tests.browser.conftest import PHONE, Tabs
from tests.browser.test_console import call, row, traffic
from tests.weights import weights


@pytest.fixture
def place(tmp_path: Path) -> Path:
    chosen = Path(os.environ.get("SERAI_IMAGES") or tmp_path)
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


@pytest.mark.timeout(300)
def test_the_pages_are_as_the_documentation_shows_them(tmp_path, place: Path, tabs: Tabs):
    for model in (MINILM, NER, RERANKER, WRITER):
        weights(model)
    with serving(tmp_path, memory="1600MiB") as server:
        server.http.post(f"/v1/models/{NER}/pin", json={"reason": "invoices at nine"})
        call(server, *extract("Ada Lovelace wrote to Charles Babbage."))
        call(server, f"/v1/generate/{WRITER}", {"prompt": "hello", "max_new_tokens": 8})
        call(server, f"/v1/encode/{NER}", {"items": [{"text": "not an encoder"}]})
        server.http.post(f"/v1/models/{MINILM}/pin", json={"reason": "search"})

        def take(page: Page, name: str, after: int = 2000) -> None:
            page.wait_for_timeout(after)
            page.screenshot(path=place / f"{name}.png")

        with traffic(server, clients=4, items=6):
            call(server, *score("who?", "a passage", "another"))
            overview = tabs.open(server.url)
            expect(row(overview, MINILM).locator("td[id$='-p99']")).not_to_have_text("–")
            dark = tabs.open(server.url, color_scheme="dark")
            phone = tabs.open(server.url, viewport=PHONE)
            take(tabs.open(f"{server.url}/console/queues"), "queues")
            take(tabs.open(f"{server.url}/console/requests?kind=slowest"), "requests")
            take(tabs.open(f"{server.url}/console/devices?bytes=1GiB"), "devices")
            take(overview, "overview", 15000)
            for page in (overview, dark, phone):
                expect(page.locator("#age")).to_have_attribute("data-age", "fresh")
            take(dark, "overview-dark", 0)
            phone.evaluate("document.getElementById('models').scrollIntoView()")
            take(phone, "overview-phone", 500)
            take(tabs.open(f"{server.url}/console/models/{MINILM}"), "model", 4000)
            row(overview, MINILM).get_by_role("link", name="All actions").click()
            take(overview, "actions", 1000)
        call(server, *encode("done"))
        audit = tabs.open(f"{server.url}/console/audit")
        take(audit, "audit", 1000)
        playground = tabs.open(f"{server.url}/console/playground?model={NER}")
        playground.get_by_role("button", name="Run").click()
        expect(playground.locator("mark").first).to_be_visible()
        take(playground, "playground", 500)

    assert {path.stem for path in place.glob("*.png")} >= {
        "overview",
        "overview-dark",
        "overview-phone",
        "model",
    }
