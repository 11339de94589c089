from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, web
from sqlite_utils import Database

from tests.web.fakes import FakeEngine
from web.app import make_app
from web.listening import at_most


@pytest.fixture
def anyio_backend() -> str:
    """Real sockets need a real clock."""
    return "asyncio"


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@asynccontextmanager
async def serving(engine: FakeEngine) -> AsyncIterator[str]:
    """The URL of an app on a free port, served as the product serves it."""
    runner = web.AppRunner(make_app(engine), handler_cancellation=True, shutdown_timeout=2)
    await runner.setup()
    connected = at_most(engine.settings.max_connections, runner)
    server = await asyncio.get_running_loop().create_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await runner.cleanup()


@pytest.fixture
async def url(engine: FakeEngine, anyio_backend: str) -> AsyncIterator[str]:
    async with serving(engine) as url:
        yield url


@pytest.fixture
async def http(url: str) -> AsyncIterator[ClientSession]:
    async with ClientSession(url) as session:
        yield session


class Clock:
    """The time of day, which goes on when told."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def db() -> Iterator[Database]:
    db = Database(memory=True)
    yield db
    db.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()
