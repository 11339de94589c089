from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser

import pytest
from aiohttp import ClientSession

from engine.engine import Engine
from tests import simulation
from tests.web.access.conftest import browser, guarded, guarding
from tests.web.conftest import serving

__all__ = ["browser", "guarded", "guarding"]

HTML = {"Accept": "text/html"}
HTMX = {**HTML, "HX-Request": "true"}


@pytest.fixture
def anyio_backend() -> str:
    """Real sockets need a real clock."""
    return "asyncio"


@pytest.fixture
def engine(guarded):
    """For tests of who may: an engine with keys and users."""
    return guarded.engine


@asynccontextmanager
async def console(*names: str, state: object = None, **settings: object) -> AsyncIterator[Console]:
    """A console over simulated models, and a client that asks as a browser does."""
    models = simulation.catalog(*(simulation.model(name) for name in names or ("org/a", "org/b", "org/c")))
    async with simulation.engine(models, **settings) as engine:
        async with serving(engine) as url, ClientSession(url) as http:
            yield Console(engine, http)


class Console:
    def __init__(self, engine: Engine, http: ClientSession) -> None:
        self.engine, self.http = engine, http

    async def page(self, path: str, headers=HTML) -> str:
        async with self.http.get(path, headers=headers) as answer:
            text = await answer.text()
            assert answer.status == 200, (path, text)
            assert answer.content_type == "text/html"
        return text

    async def do(self, headers=HTMX, **form: object) -> tuple[int, str]:
        """Status and text of an act."""
        data = {name: str(value) for name, value in form.items()}
        async with self.http.post("/console/do", data=data, headers=headers, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    async def led(self, base: str, **form: str) -> str:
        """Where an act leads a browser without a script; `base` is the server's base path."""
        path = f"{base}/console/do"
        async with self.http.post(path, data=form, headers=HTML, allow_redirects=False) as answer:
            assert answer.status == 303
            return answer.headers["Location"]


class Seen(HTMLParser):
    """What a strict policy forbids, what a page leads to, and which elements have a name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.forbidden: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in names):
            self.forbidden.append(tag)
        self.forbidden += [n for n in names if n == "style" or n.startswith(("on", "hx-on"))]
        self.forbidden += [
            f"{n}=js:" for n, value in names.items() if (value or "").startswith(("js:", "javascript:"))
        ]
        self.links += [value for name in ("href", "src") if (value := names.get(name))]
        self.ids += [value] if (value := names.get("id")) else []
