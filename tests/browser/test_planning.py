"""Recordings, replays and plans in a real browser, on real starter models; and their pictures."""

from __future__ import annotations

import os
import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.asking import MINILM, RERANKER, encode, score
from tests.acceptance.serving import Server, serving
from tests.browser.conftest import PHONE, Tabs
from tests.browser.test_console import call
from tests.weights import weights

ENOUGH = 90_000


def asked(server: Server, times: int) -> None:
    """Requests for two models, one after the other."""
    with httpx.Client(base_url=server.url, timeout=30, headers={"Accept": "application/json"}) as client:
        for number in range(times):
            path, body = (
                score("who?", "a passage") if number % 4 == 3 else encode("hello there " * (1 + number % 9))
            )
            client.post(path, json=body).raise_for_status()


def fits(page: Page) -> bool:
    return page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]


@pytest.mark.timeout(240)
def test_traffic_is_recorded_replayed_and_planned_with_by_hand(tmp_path, tabs: Tabs):
    for model in (MINILM, RERANKER):
        weights(model)
    place = os.environ.get("SERAI_IMAGES")

    def take(page: Page, name: str) -> None:
        if place:
            page.wait_for_timeout(500)
            page.screenshot(path=Path(place) / f"{name}.png", full_page=name.startswith("plan"))

    with serving(tmp_path, memory="1GiB") as server:
        call(server, *encode("first"))
        call(server, *score("who?", "a passage"))
        page = tabs.open(f"{server.url}/console/recordings")
        page.get_by_label("Name", exact=True).first.fill("monday")
        page.get_by_role("button", name="Start recording").click()
        expect(page.locator(".now-running")).to_contain_text("monday is being recorded")
        asked(server, 160 if place else 48)
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(page.locator("#recording-panel .curve canvas")).to_be_visible()
        expect(page.get_by_role("row").filter(has_text=MINILM)).to_be_visible()
        take(page, "recording")

        page.get_by_role("link", name="Replay", exact=True).click()
        page.get_by_label("Times as fast").fill("0.5")
        page.get_by_role("button", name="Replay", exact=True).click()
        expect(page.locator("#replay-panel progress")).to_be_visible()
        expect(page.locator("#replay-panel .curve canvas").first).to_be_visible(timeout=ENOUGH)
        if place:
            expect(page.locator("#replay-panel progress")).to_have_attribute("value", re.compile(r"^[6-9]\."))
        take(page, "replay-live")
        expect(page.locator(".verdict")).to_be_visible(timeout=ENOUGH)
        expect(page.locator(".verdict")).to_contain_text(re.compile("the run counts|This run is void"))
        take(page, "replay")

        page.goto(f"{server.url}/console/plans?recording=monday")
        take(page, "planning")
        page.get_by_label("Name of this plan").fill("half the memory")
        page.get_by_label("Memory of each").fill("300MiB")  # they swap: the ramp is over at a low rate
        page.get_by_label("Price of one").fill("1.20")
        page.get_by_role("button", name="Work it out").click()
        expect(page.locator("#plan-panel progress")).to_be_visible()
        if place:  # minutes of two cores: what a plan shows is tested on simulated models
            expect(page.locator(".verdict")).to_contain_text("Redundancy", timeout=ENOUGH)
            expect(page.locator(".side .curve canvas")).to_have_count(2)
        else:
            page.get_by_role("button", name="Give it up").click()
            expect(page.locator("#plan-panel")).to_contain_text("It was given up")
        take(page, "plan")

        addresses = [page.url, f"{server.url}/console/recordings/monday"]
        phone = tabs.open(page.url, viewport=PHONE, color_scheme="dark")
        addresses += [f"{server.url}/console/{path}" for path in ("recordings", "replays", "plans")]
        for address in addresses:
            phone.goto(address)
            phone.wait_for_timeout(200)
            assert fits(phone), address
        if place:
            name = page.url.rpartition("/")[2]
            phone.goto(page.url)
            take(phone, "plan-phone")
            dark = tabs.open(page.url, color_scheme="dark")
            take(dark, "plan-dark")
            page.goto(f"{server.url}/console/recordings")
            take(page, "recordings")
            page.goto(f"{server.url}/console/plans/compare?of={name}&of={name}")
            take(page, "plans-compared")
