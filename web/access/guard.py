"""The guard: every request passes it, and none passes it for being forgotten."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from engine.access.principals import Action, Kind, Principal, allowed
from engine.errors import Forbidden, Unauthorized
from web.access import current, origin, routes, sessions
from web.access.current import PRINCIPAL, SESSION
from web.keys import ENGINE


@web.middleware
async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Who asks, whether they may, and whether not too often. What they may not is refused unread."""
    current.refuse_keys_in_addresses(request)
    action = routes.needed(request)
    if action is None:
        return await handler(request)
    try:
        principal = current.identify(request, action)
        if principal is None:
            raise Unauthorized
    except Unauthorized:
        if (elsewhere := _to_login(request)) is not None:
            return elsewhere
        raise
    check(principal, action)
    request[PRINCIPAL] = principal
    with _counted(request, principal, action):
        response = await handler(request)
    _keep_session(request, response)
    return response


def check(principal: Principal, action: Action) -> None:
    """Raises Forbidden, saying what would be needed."""
    if allowed(principal, action):
        return
    if principal.kind is Kind.KEY:
        needed = {Action.CALL: "call", Action.SEE: "call or admin", Action.SCRAPE: "metrics"}
        raise Forbidden(
            f"The key {principal.name!r} is for {' and '.join(principal.scopes)}; this needs a key with the "
            f"scope {needed.get(action, 'admin')}."
        )
    least = "an admin" if action is Action.ADMINISTER else "an operator"
    raise Forbidden(f"{principal.name} is a {principal.role}; this needs {least}.")


@contextmanager
def _counted(request: web.Request, principal: Principal, action: Action) -> Iterator[None]:
    """Calls cost the server something, so they are limited; looking is not."""
    engine = request.app[ENGINE]
    if action is not Action.CALL:
        engine.access.seen(principal)
        yield
        return
    leave = engine.access.enter(principal, engine.now())
    try:
        yield
    finally:
        leave()


def _to_login(request: web.Request) -> web.Response | None:
    """Where a person goes who is not known yet. A program is told so instead."""
    login = f"{request.app[ENGINE].settings.base_path}/login"
    if "HX-Request" in request.headers:
        return web.Response(status=401, headers={"HX-Redirect": login})
    page = request.method == "GET" and "text/html" in request.headers.get(hdrs.ACCEPT, "")
    if not page or hdrs.AUTHORIZATION in request.headers:
        return None
    return web.Response(status=303, headers={hdrs.LOCATION: f"{login}?next={quote(request.path)}"})


def _keep_session(request: web.Request, response: web.StreamResponse) -> None:
    """A session that is used goes on; the browser is told so now and then."""
    session = request.get(SESSION)
    if session is None or response.prepared:
        return
    if fresh := sessions.renewed(session, time.time()):
        sessions.give(response, fresh, request.app[ENGINE].access, secure=origin.https(request))
