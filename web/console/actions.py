"""`/console/do`: what an operator asks for by a form, with or without a script.

Who has no script is sent back by 303; htmx gets what there is to say. Everything goes through the same
methods of the engine as the admin API, and so into the same audit.
"""

from __future__ import annotations

from collections.abc import Mapping

import anyio
from aiohttp import hdrs, web

from engine.adjustments import KEYS
from engine.errors import EngineError, InvalidInput, StateChanged
from engine.orders import Action, CatalogDone, Done, Order
from web import errors
from web.access.current import who
from web.access.form import fields
from web.console import adjusting, costs, pages, panels, situations, words
from web.console.costs import Cost
from web.console.hub import HUB
from web.keys import ENGINE

ALL = "*"
CATALOGUE = "catalogue"
PATIENCE = 5.0
"""Seconds that whoever acts waits to hear how it ended; it goes on after that, and the audit tells."""
MOST = 500
GOES_ON = "What waits goes on."
UNDO = {
    Action.PIN: Action.UNPIN,
    Action.UNPIN: Action.PIN,
    Action.PAUSE: Action.RESUME,
    Action.ADJUST: Action.ADJUST,
}
DONE = {
    Action.LOAD: "is loaded",
    Action.UNLOAD: "is unloaded",
    Action.PIN: "is pinned",
    Action.UNPIN: "is not pinned any more",
    Action.DRAIN: "is drained and paused",
    Action.PAUSE: "takes no new requests",
    Action.RESUME: "takes requests again",
    Action.RELOAD: "was loaded anew",
    Action.ADJUST: "is adjusted",
}


async def sheet(request: web.Request) -> web.Response:
    """`/console/act?model=`: everything that may be done to a model, and what each would cost."""
    hub = request.app[HUB]
    await hub.look()
    engine = request.app[ENGINE]
    name = situations.target(engine, request.query.get("model", "")[:MOST])
    spec, _, adapter = engine.catalog.named(name)
    now = situations.situation(hub, name)
    context = {
        "model": name,
        "row": now.row if now else None,
        "acts": situations.acts(hub, name),
        "fields": adjusting.fields(engine, name) if adapter is None else [],
        "adjust": costs.of(Action.ADJUST, now) if now else Cost(),
        "parts": situations.parts(spec) if name == spec.id else [],
        "adapters": situations.of_model(hub, spec) if name == spec.id else [],
        "version": engine.operators.version(spec.id),
    }
    return await pages.page(request, "act", context, at="overview")


async def do(request: web.Request) -> web.Response:
    """Answers 409 when the model has changed since it was looked at, and what it would cost when it costs."""
    form = await fields(request)
    model = _text(form, "model")
    try:
        action = Action(_text(form, "action"))
    except ValueError:
        raise InvalidInput(f"An action is one of {', '.join(Action)}.") from None
    try:
        if model == CATALOGUE:
            return await _reload(request, form)
        if model != ALL:
            model = situations.target(request.app[ENGINE], model, action)
        if not form.get("confirmed") and (cost := await _cost(request, action, model)).hurts:
            return _asked(request, action, model, cost, form)
        return await _act(request, _order(request, action, model, form))
    except EngineError as error:
        return _refused(request, error, action, model, form)


async def _act(request: web.Request, order: Order) -> web.Response:
    done: Done | None = None
    extra = adjusting.before(request.app[ENGINE], order.model, order.changes) if order.changes else {}
    with anyio.move_on_after(PATIENCE):
        done = await request.app[ENGINE].operators.operate(order)
    name = "Every model" if order.model == ALL else order.model
    if done is None:
        return _said(
            request, order.model, f"{name}: {order.action} is under way; the audit tells how it ends."
        )
    text = f"{name} {DONE[order.action]}."
    if done.no_longer_fits:
        text += f" Beside the pins there is no room any more for {', '.join(done.no_longer_fits)}."
    return _said(request, order.model, text, UNDO.get(order.action), done.version, extra)


async def _reload(request: web.Request, form: Mapping[str, str]) -> web.Response:
    operators, done = request.app[ENGINE].operators, None
    with anyio.move_on_after(PATIENCE):
        done = await operators.reload_catalog(who(request), _text(form, "reason"), _version(form))
    return _said(request, CATALOGUE, _changed(done))


def _changed(done: CatalogDone | None) -> str:
    if done is None:
        return "The catalogue is being read; the audit tells how it ends."
    told = {
        "added": done.added,
        "removed": done.removed,
        "revised": done.revised,
        "replaced": done.replaced,
        "served as before, since the new version failed": tuple(done.rolled_back),
    }
    parts = [f"{len(names)} {what}" for what, names in told.items() if names]
    return f"The catalogue was read: {', '.join(parts) or 'nothing has changed'}."


def _order(request: web.Request, action: Action, model: str, form: Mapping[str, str]) -> Order:
    changes = adjusting.changes(form, model) if action is Action.ADJUST else {}
    return Order(
        action, model, who(request), _text(form, "reason"), if_version=_version(form), changes=changes
    )


async def _cost(request: web.Request, action: Action, model: str) -> Cost:
    hub = request.app[HUB]
    await hub.look()
    if model == ALL:
        lines = (f"Requests of every model are refused, {words.rate(hub.sampler.rate)} now.", GOES_ON)
        return Cost(lines, hurts=action is Action.PAUSE)
    now = situations.situation(hub, model)
    return costs.of(action, now) if now else Cost()


def _said(
    request: web.Request,
    model: str,
    text: str,
    undo: Action | None = None,
    version: int | None = None,
    extra: Mapping[str, str] | None = None,
) -> web.Response:
    """That it is done. Without a script: back to where one was, which shows how it is now.

    `extra` is what the form that undoes it says beside the action.
    """
    request.app[HUB].doubt()
    if not pages.wants_panel(request):
        return web.Response(status=303, headers={hdrs.LOCATION: _back(request, model)})
    context = {"text": text, "undo": undo, "model": model, "model_version": version, "extra": extra or {}}
    return panels.said(request, context)


def _asked(
    request: web.Request, action: Action, model: str, cost: Cost, form: Mapping[str, str]
) -> web.Response:
    context = {"action": action, "model": model, "cost": cost, **_given(form)}
    return panels.dialog(request, "confirm", context, 200)


def _refused(
    request: web.Request, error: EngineError, action: Action, model: str, form: Mapping[str, str]
) -> web.Response:
    fresh = error.details.get("version") if isinstance(error, StateChanged) else None
    given = {**_given(form), **({"given_version": fresh} if fresh is not None else {})}
    context = {"action": action, "model": model, "error": error, "again": fresh is not None, **given}
    return panels.dialog(request, "refused", context, errors.status(error))


def _back(request: web.Request, model: str) -> str:
    path = "/" if model in (ALL, CATALOGUE) else pages.model_path(model.partition(":")[0])
    return request.app[ENGINE].settings.base_path + path


def _given(form: Mapping[str, str]) -> dict[str, object]:
    extra = {name: form[name][:MOST] for name in KEYS if name in form}
    return {"given_version": _version(form), "reason": _text(form, "reason"), "extra": extra}


def _version(form: Mapping[str, str]) -> int | None:
    said = _text(form, "version")
    if not said:
        return None
    if not said.isascii() or not said.isdecimal() or len(said) > 18:
        raise InvalidInput("version is a whole number.")
    return int(said)


def _text(form: Mapping[str, str], name: str) -> str:
    return form.get(name, "").strip()[:MOST]
