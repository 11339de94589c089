"""Chromium, driven against the real server. Skipped where there is no Chromium; `.ci/run` installs it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.acceptance.asking import MINILM, NER, PHOTOS, RERANKER, WRITER
from tests.acceptance.serving import Server, serving
from tests.weights import weights

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 30_000
"""Milliseconds that a busy machine gets for anything that a page is to show."""
LAPTOP, PHONE = {"width": 1360, "height": 850}, {"width": 360, "height": 740}

LISTEN = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
    window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: drives chromium; deselect with -m 'not browser'")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason="no chromium here: apt-get install chromium"))


@dataclass
class Tabs:
    """Opens tabs, each a browser of its own, and remembers what they complained of."""

    browser: Browser
    stack: ExitStack
    complaints: list[str] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)

    def open(self, url: str, **options: Any) -> Page:
        context = self.browser.new_context(**{"viewport": LAPTOP, "locale": "en-GB", **options})
        self.stack.callback(context.close)
        context.set_default_timeout(PATIENCE)
        context.add_init_script(LISTEN)
        page = context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(f"{page.url}: {error}"))
        page.on("console", lambda said: self._hear(page, said.type, said.text))
        page.goto(url)
        self.pages.append(page)
        return page

    def check(self) -> None:
        """No page broke, and none did what its policy forbids."""
        for page in self.pages:
            if not page.is_closed() and page.url.startswith("http"):
                self.complaints += page.evaluate("window.violations ?? []")
        assert self.complaints == []

    def _hear(self, page: Page, kind: str, text: str) -> None:
        network = any(each in text for each in ("Failed to load resource", "net::ERR", "Failed to fetch"))
        if kind in ("error", "warning") and not network:
            self.complaints.append(f"{page.url}: {text}")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Only while these tests run: its event loop goes on in this thread, and no other may beside it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def tabs(chromium: Browser) -> Iterator[Tabs]:
    with ExitStack() as stack:
        found = Tabs(chromium, stack)
        yield found
        found.check()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with room for everything, that the tests share. No test may leave it worse."""
    for model in (MINILM, RERANKER, NER, WRITER, PHOTOS):
        weights(model)
    with serving(tmp_path_factory.mktemp("browser"), memory="2GiB") as running:
        yield running
