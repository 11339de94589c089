"""Whether the weights of each model are on this machine, as lists of models tell it."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
from anyio import to_thread

from engine.catalog import Catalog
from engine.sources.locate import Sources
from web.engine import Engine

KEPT = 30.0
"""Seconds for which what was seen is told again: every model is several files to look at."""
HERE, FETCHED, MISSING = "here", "fetched when needed", "not here"


class Weights:
    """Looks at files in a thread, seldom, for all who ask."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._looking = anyio.Lock()
        self._seen: Mapping[str, str] = {}
        self._of: Catalog | None = None
        self._until = 0.0

    async def told(self) -> Mapping[str, str]:
        """By model. What is resident is here, whatever became of its files."""
        engine = self._engine
        async with self._looking:
            catalog = engine.catalog
            if self._of is not catalog or engine.now() >= self._until:
                self._seen = await to_thread.run_sync(_look, catalog, Sources.of(engine.settings))
                self._of, self._until = catalog, engine.now() + KEPT
        loaded = {model.id: HERE for model in engine.view().models if model.state == "loaded"}
        return {**self._seen, **loaded}


def _look(catalog: Catalog, sources: Sources) -> dict[str, str]:
    found = {}
    for spec in catalog:
        here = sources.here(spec) is not None
        found[spec.id] = HERE if here else FETCHED if sources.available(spec) else MISSING
    return found
