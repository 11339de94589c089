"""Who asks: for handlers and pages `current` and `may`, for streams `still`, for calls `stamped`."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from urllib.parse import unquote

from aiohttp import web

from engine.access.principals import LOCAL, Action, Kind, Principal, allowed
from engine.errors import InvalidInput, Unauthorized
from engine.requests import Request
from web.access import origin, sessions
from web.access.sessions import Session
from web.keys import ENGINE

PRINCIPAL: web.RequestKey[Principal] = web.RequestKey("principal", Principal)
SESSION: web.RequestKey[Session] = web.RequestKey("session", Session)

SCRAPER = Principal("local", Kind.LOCAL, "local", frozenset({Action.SCRAPE}))
"""Whoever reads metrics on the machine itself, where the setting `auth` is `auto`."""

KEY_HEADERS = ("x-api-key", "api-key")
_KEY = re.compile(r"serai_[0-9A-Za-z]{16,}")
"""What a key looks like, or the most of one."""

_QUERY_NAMES = frozenset({"key", "api_key", "api-key", "apikey", "x-api-key", "token", "access_token"})


def current(request: web.Request) -> Principal | None:
    """Who asks; None only on routes that are open to everybody."""
    return request.get(PRINCIPAL)


def may(request: web.Request, action: Action) -> bool:
    return allowed(current(request), action)


def who(request: web.Request) -> str:
    """How the audit names whoever asks."""
    principal = current(request)
    return "operator" if principal is None or principal.kind is Kind.LOCAL else principal.id


def still(request: web.Request, action: Action) -> bool:
    """Whether who began this request may go on: for streams and sockets to ask now and then.

    A key that was revoked, a user who was removed or got another role, a session that was left or is
    over: none of them may.
    """
    try:
        found = identify(request, action)
    except Unauthorized:
        return False
    return allowed(found, action)


def stamped(request: web.Request, made: Request) -> Request:
    """The call as this caller's: whose it is, and of which class where it names none.

    Raises Forbidden for a model that the caller's key is not for.
    """
    principal = current(request)
    if principal is None or principal.kind is Kind.LOCAL:
        return made
    request.app[ENGINE].access.check_model(principal, made.model)
    chosen = principal.service_class if made.service_class is None else made.service_class
    return replace(made, principal=principal.id, service_class=chosen)


def identify(request: web.Request, action: Action | None) -> Principal | None:
    """Who asks. A key counts before a session. Raises Unauthorized for a key that is none.

    `action` is what they ask for: metrics may be read on the machine itself.
    """
    engine = request.app[ENGINE]
    if engine.access.open:
        return LOCAL
    if (key := key_of(request)) is not None:
        return engine.access.by_key(key)
    if value := sessions.of(request):
        found = sessions.read(value, engine.access, time.time())
        if found:
            request[SESSION], user = found
            return user
    if action is Action.SCRAPE and engine.settings.auth == "auto" and origin.is_local(request):
        return SCRAPER
    return None


def key_of(request: web.Request) -> str | None:
    """The key that a request brings. Raises Unauthorized for other ways of saying who one is."""
    said = request.headers.get("Authorization")
    if said is not None:
        scheme, _, key = said.partition(" ")
        if scheme.lower() == "bearer":
            return key.strip()
        # What stands there may be the key itself, which is not repeated.
        raise Unauthorized(
            "This Authorization header is not understood: write `Authorization: Bearer <key>`."
        )
    return next((request.headers[name].strip() for name in KEY_HEADERS if name in request.headers), None)


def refuse_keys_in_addresses(request: web.Request) -> None:
    """Addresses end up in logs, histories and proxies. Raises InvalidInput."""
    named = any(name.lower() in _QUERY_NAMES for name in request.query)
    if named or _KEY.search(unquote(request.raw_path)):
        raise InvalidInput(
            "A key does not belong into the address, which proxies and browsers write down. Send it as "
            "`Authorization: Bearer ...`. If this one was real, revoke it."
        )


def without_keys(address: str) -> str:
    """The address as it may be written down."""
    return _KEY.sub("serai_...", address)
