"""Whether the weights of each model are on this machine, as lists of models tell it."""

from __future__ import annotations

from collections.abc import Mapping

from anyio import to_thread

from engine.catalog import Catalog
from engine.sources.locate import Sources
from web.engine import Engine

KEPT = 30.0
"""Seconds for which what was seen is told again: every model is several files to look at."""
HERE, FETCHED, MISSING = "here", "fetched when needed", "not here"


class Weights:
    """Looks at files in a thread, seldom."""

    def __init__(self) -> None:
        self._seen: Mapping[str, str] = {}
        self._of: Catalog | None = None
        self._until = 0.0

    async def told(self, engine: Engine) -> Mapping[str, str]:
        """By model. What is resident is here, whatever became of its files."""
        catalog = engine.catalog
        if self._of is not catalog or engine.now() >= self._until:
            self._seen = await to_thread.run_sync(_look, catalog, _sources(engine))
            self._of, self._until = catalog, engine.now() + KEPT
        loaded = {model.id: HERE for model in engine.view().models if model.state == "loaded"}
        return {**self._seen, **loaded}


def _sources(engine: Engine) -> Sources:
    settings = engine.settings
    extras = frozenset(settings.extras)
    return Sources(settings.store, settings.online, settings.hub_endpoint, settings.hub_token, extras)


def _look(catalog: Catalog, sources: Sources) -> dict[str, str]:
    found = {}
    for spec in catalog:
        here = sources.here(spec) is not None
        found[spec.id] = HERE if here else FETCHED if sources.available(spec) else MISSING
    return found
