"""What the edge asks of the engine. `engine.engine.Engine` is it; a test may bring its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from engine.catalog import Catalog
from engine.config import Settings
from engine.requests import Delta, Request, Response
from engine.view import EngineView


class Engine(Protocol):
    """Everything raises `EngineError` for what a caller is told; anything else is a bug."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def session_key(self) -> bytes:
        """Key of the hash that stands for a session in records."""
        ...

    @property
    def accepting(self) -> bool:
        """False while the server drains."""
        ...

    def now(self) -> float:
        """The clock of deadlines: the event loop's."""
        ...

    async def submit(self, request: Request) -> Response:
        """Cancelled when the caller leaves; holds the request's deadline itself."""
        ...

    def stream(self, request: Request) -> AsyncIterator[Delta]:
        """An async generator, which is closed when the caller leaves. It never waits for its reader."""
        ...

    def encoded(self, model: str, seconds: float) -> None:
        """An answer of `model` was written in so many seconds."""
        ...

    def view(self) -> EngineView: ...

    def metrics(self) -> bytes:
        """Prometheus text."""
        ...

    async def load(self, model: str) -> None:
        """Returns when it is resident."""
        ...

    async def unload(self, model: str) -> None:
        """Returns when it is gone."""
        ...

    async def pin(self, model: str) -> tuple[str, ...]:
        """Which units no longer fit beside what is pinned."""
        ...

    async def unpin(self, model: str) -> None: ...
