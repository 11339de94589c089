"""The pictures of the documentation: SERAI_IMAGES=docs/images writes them there, else nobody keeps them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests.acceptance.asking import MINILM, NER, RERANKER, extract, score
from tests.acceptance.serving import serving
from tests.browser.conftest import PHONE, Tabs
from tests.browser.test_console import call, row, traffic
from tests.weights import weights

KEEPING = bool(os.environ.get("SERAI_IMAGES"))
HISTORY = 60_000 if KEEPING else 1000
"""Milliseconds of traffic before pictures are taken: charts that somebody reads have something in them."""

FITS = "Array.from(document.querySelectorAll('.wide')).every((each) => each.scrollWidth <= each.clientWidth)"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    chosen = Path(os.environ.get("SERAI_IMAGES") or tmp_path)
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


@pytest.mark.timeout(300)
def test_the_pages_are_as_the_documentation_shows_them(tmp_path, place: Path, tabs: Tabs):
    for model in (MINILM, NER, RERANKER):
        weights(model)

    def take(page: Page, name: str) -> None:
        path = place / f"{name}.png"
        page.screenshot(path=path)
        if KEEPING:  # a quarter of the bytes, and the same to look at
            Image.open(path).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(path, optimize=True)

    with serving(tmp_path, memory="1600MiB") as server:
        server.http.post(f"/v1/models/{NER}/pin", json={"reason": "invoices at nine"})
        call(server, *extract("Ada Lovelace wrote to Charles Babbage."))
        call(server, *score("who?", "a passage", "another"))
        with traffic(server, clients=4, items=6):
            pages = {
                "overview": tabs.open(server.url),
                "overview-phone": tabs.open(server.url, viewport=PHONE),
                "model": tabs.open(f"{server.url}/console/models/{MINILM}", color_scheme="dark"),
                "queues": tabs.open(f"{server.url}/console/queues"),
                "devices": tabs.open(f"{server.url}/console/devices?bytes=1GiB"),
            }
            overview, phone = pages["overview"], pages["overview-phone"]
            expect(row(overview, MINILM).locator("td[id$='-p99']")).not_to_have_text("–")
            overview.wait_for_timeout(HISTORY)
            phone.evaluate("document.getElementById('models').scrollIntoView()")
            assert overview.evaluate(FITS), "no button is cut off, however long the names are"
            for name, page in pages.items():
                expect(page.locator("#age")).to_have_attribute("data-age", "fresh")
                take(page, name)
            row(overview, MINILM).get_by_role("link", name="All actions").click()
            expect(overview.locator("#dialog")).to_contain_text("Frees")
            take(overview, "actions")

    assert {path.stem for path in place.glob("*.png")} >= {*pages, "actions"}
