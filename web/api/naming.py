"""The entry that a request names; where the catalogue is open, one may be made for it."""

from __future__ import annotations

from collections.abc import Callable

from engine.adopting.opened import hub_name
from engine.catalog import Catalog, ModelSpec
from engine.errors import UnknownModel
from web.engine import Engine


async def known(engine: Engine, model: str, check: Callable[[str], object]) -> ModelSpec:
    """`model` may name a profile or an adapter too. `check` refuses a model that the caller may not name:
    before anything is made of it. Raises UnknownModel, InvalidInput."""
    try:
        return _entry(engine.catalog, model)
    except UnknownModel:
        if not engine.settings.open_catalog:
            raise
    check(hub_name(model))
    await engine.need(model)
    return _entry(engine.catalog, model)


def _entry(catalog: Catalog, model: str) -> ModelSpec:
    return catalog.resolve(catalog.adapted(model)[0])[0]
