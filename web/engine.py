"""What the edge asks of the engine. `engine.engine.Engine` is it; a test may bring its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from engine.access.access import Access
from engine.batches.batches import Batches
from engine.catalog import Catalog, ModelSpec
from engine.closely import Closely
from engine.config import Settings
from engine.estimates import Estimated, Tokens
from engine.orders import CatalogDone, Done, Order, Previewed
from engine.recordings import Recordings
from engine.requests import Delta, Request, Response
from engine.sizes import Sizes
from engine.view import EngineView
from engine.wishes import Audited


class Operators(Protocol):
    """What an operator may have done. It goes on when whoever asked for it leaves."""

    async def operate(self, order: Order) -> Done:
        """Returns when it is done."""
        ...

    async def reload_catalog(
        self, who: str = "operator", reason: str = "", if_version: int | None = None
    ) -> CatalogDone:
        """Serve what the catalogue's files say now."""
        ...

    def version(self, model: str) -> int:
        """The number of the last act on the model with this id."""
        ...

    def entry(self, model: str) -> ModelSpec:
        """As the catalogue's files have it, without what is adjusted."""
        ...

    def adjusted(self, target: str) -> Mapping[str, Any]:
        """What operators changed of a model's limits, class and share, or of `model:profile`'s limits."""
        ...

    async def preview_entry(self, text: str) -> Previewed:
        """What one more entry, as YAML, would change."""
        ...

    async def add_entry(
        self, text: str, who: str = "operator", reason: str = "", if_version: int | None = None
    ) -> CatalogDone:
        """Serve it from now on."""
        ...

    async def remove_entry(
        self, model: str, who: str = "operator", reason: str = "", if_version: int | None = None
    ) -> CatalogDone:
        """Of one that was added so."""
        ...

    async def added_entries(self) -> frozenset[str]:
        """Models whose entries were added so."""
        ...

    async def history(self, limit: int, target: str | None = None) -> list[Audited]:
        """What was done, the newest first."""
        ...


class Engine(Protocol):
    """Everything raises `EngineError` for what a caller is told; anything else is a bug."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def access(self) -> Access:
        """Keys and users, and who may do what."""
        ...

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

    async def need(self, model: str) -> None:
        """Where the catalogue is open, make an entry for a repository that it does not know."""
        ...

    async def submit(self, request: Request) -> Response:
        """Cancelled when the caller leaves; holds the request's deadline itself."""
        ...

    def stream(self, request: Request) -> AsyncIterator[Delta]:
        """An async generator, which is closed when the caller leaves. It never waits for its reader."""
        ...

    async def estimate(self, request: Request) -> Estimated:
        """What it would cost and how it would fare now. Nothing of it is run."""
        ...

    async def tokenize(self, model: str, texts: tuple[str, ...], special: bool) -> list[Tokens]:
        """Each text as the model's tokenizer cuts it, `special`: with the tokens around it."""
        ...

    async def spell(self, model: str, ids: tuple[tuple[int, ...], ...], special: bool) -> list[str]:
        """The texts that ids of the model's tokenizer stand for."""
        ...

    def encoded(self, model: str, seconds: float) -> None:
        """An answer of `model` was written in so many seconds."""
        ...

    def view(self) -> EngineView: ...

    def metrics(self) -> bytes:
        """Prometheus text."""
        ...

    @property
    def closely(self) -> Closely:
        """What pages about one thing need."""
        ...

    @property
    def sizes(self) -> Sizes:
        """What models take that were never loaded."""
        ...

    @property
    def operators(self) -> Operators: ...

    @property
    def recordings(self) -> Recordings: ...

    @property
    def batches(self) -> Batches:
        """Files, and batches of calls."""
        ...
