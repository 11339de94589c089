"""`/console/bulk`: the same act for several models, each by its own order, after one look at the cost."""

from __future__ import annotations

import anyio
from aiohttp import hdrs, web

from engine.errors import EngineError, InvalidInput
from engine.orders import Action, Order
from web.access.current import who
from web.access.form import pairs
from web.console import costs, pages, situations
from web.console.hub import HUB
from web.console.panels import dialog, said
from web.keys import ENGINE

ACTS = (Action.PIN, Action.UNPIN, Action.LOAD, Action.UNLOAD)
MOST = 100
"""Models of one act."""
PATIENCE = 10.0
"""Seconds in which it is told how it ended; it goes on after that."""


async def do(request: web.Request) -> web.Response:
    """Without `confirmed` it tells what it would cost; what is confirmed names each model's version."""
    form = await pairs(request, 2 * MOST + 10)
    given = dict(form)
    models = list(dict.fromkeys(value for name, value in form if name == "models"))
    try:
        action = Action(given.get("action", ""))
        if action not in ACTS or not 0 < len(models) <= MOST:
            raise ValueError
    except ValueError:
        acts = ", ".join(ACTS)
        raise InvalidInput(f"Choose from 1 to {MOST} models, and one of {acts}.") from None
    if not given.get("confirmed"):
        return await _ask(request, action, models)
    return await _act(request, action, models, given.get("reason", "").strip()[:500])


async def _ask(request: web.Request, action: Action, models: list[str]) -> web.Response:
    """What each would cost, with the version that this is based on."""
    hub, engine = request.app[HUB], request.app[ENGINE]
    hub.doubt()
    await hub.look()
    found = []
    for name in models:
        spec, _ = engine.catalog.resolve(name)
        now = situations.situation(hub, spec.id)
        lines = costs.of(action, now).lines if now else ()
        found.append((f"{spec.id}@{engine.operators.version(spec.id)}", spec.id, lines))
    return dialog(request, "bulk", {"action": action, "found": found}, 200)


async def _act(request: web.Request, action: Action, models: list[str], reason: str) -> web.Response:
    """One after the other: one that is refused stops none of the others."""
    done: list[str] = []
    wrong: list[tuple[str, str]] = []

    async def each() -> None:
        for named in models:
            model, _, version = named.rpartition("@")
            try:
                if not (version.isascii() and version.isdecimal() and len(version) < 19):
                    raise InvalidInput(f"{named[:100]} says no version.")
                order = Order(action, model, who(request), reason, if_version=int(version))
                await request.app[ENGINE].operators.operate(order)
                done.append(model)
            except EngineError as error:
                wrong.append((model, error.message))

    with anyio.move_on_after(PATIENCE) as scope:
        await each()
    rest = len(models) - len(done) - len(wrong) if scope.cancelled_caught else 0
    request.app[HUB].doubt()
    if wrong or rest:
        context = {"action": action, "done": done, "wrong": wrong, "rest": rest}
        return dialog(request, "bulk_done", context, 409 if wrong else 200)
    if not pages.wants_panel(request):
        base = request.app[ENGINE].settings.base_path
        return web.Response(status=303, headers={hdrs.LOCATION: f"{base}/"})
    return said(request, {"text": f"{action}: {len(done)} models.", "undo": None, "extra": {}})
