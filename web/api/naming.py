"""The entry that a request names; where the catalogue is open, one may be made for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.adopting.opened import hub_name
from engine.catalog import Catalog, ModelSpec
from engine.errors import InvalidInput, UnknownModel
from engine.requests import Options
from web.engine import Engine
from web.wire.bodies import Asked


async def known(engine: Engine, model: str, check: Callable[[str], object]) -> ModelSpec:
    """`model` may name a profile or an adapter too. `check` refuses a model that the caller may not name:
    before anything is made of it. Raises UnknownModel, InvalidInput."""
    try:
        return entry(engine.catalog, model)
    except UnknownModel:
        if not engine.settings.open_catalog:
            raise
    check(hub_name(model))
    await engine.need(model)
    return entry(engine.catalog, model)


def chosen(catalog: Catalog, model: str, asked: Asked) -> tuple[ModelSpec, str | None, Options]:
    """The entry and the profile that a body is for, and its options with the adapter that `model` may name,
    or the body's own where the model has it. Raises UnknownModel, InvalidInput for two adapters."""
    spec, profile, lora = catalog.named(model)
    if asked.profile:
        spec, profile = catalog.resolve(f"{spec.id}:{asked.profile}")
    own = asked.lora if asked.lora in spec.loras else None
    named = dict.fromkeys(name for name in (lora, asked.options.lora, own) if name)
    if len(named) > 1:
        said = " and ".join(repr(name[:100]) for name in named)
        raise InvalidInput(f"The adapters {said} are asked for in one request; name one, in one place.")
    return spec, profile, replace(asked.options, lora=next(iter(named))) if named else asked.options


def entry(catalog: Catalog, model: str) -> ModelSpec:
    """The one that `model` names, also with a profile or an adapter behind a colon. Raises UnknownModel."""
    return catalog.named(model)[0]
