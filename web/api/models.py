"""`/v1/models`: what there is and how it is, and what an operator may ask of a model."""

from __future__ import annotations

from aiohttp import web

from web import sending
from web.errors import NotFound
from web.keys import ENGINE
from web.wire import status


async def list_models(request: web.Request) -> web.Response:
    engine = request.app[ENGINE]
    return sending.small({"models": status.models(engine.catalog, engine.view())})


async def show(request: web.Request) -> web.Response:
    """Raises UnknownModel."""
    return sending.small(_info(request))


async def act(request: web.Request) -> web.Response:
    """`load`, `unload`, `pin` or `unpin`; then how the model is. A pin says what no longer fits beside it.

    Raises NotFound, naming the four, for another action.
    """
    engine, name = request.app[ENGINE], request.match_info["model"]
    actions = {"load": engine.load, "unload": engine.unload, "pin": engine.pin, "unpin": engine.unpin}
    action = request.match_info["action"]
    if action not in actions:
        raise NotFound(f"{action[:100]!r} is nothing that a model can be told; use {', '.join(actions)}.")
    outcome = await actions[action](name)
    return sending.small({**_info(request), "no_longer_fits": list(outcome or ())})


def _info(request: web.Request) -> dict[str, object]:
    engine = request.app[ENGINE]
    spec, _ = engine.catalog.resolve(request.match_info["model"])
    return next(m for m in status.models(engine.catalog, engine.view()) if m["name"] == spec.id)
