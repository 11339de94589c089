"""`/v1/admin/keys`: API keys over HTTP. A key's secret is in the answer that makes it and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from aiohttp import web
from msgspec import Meta, Struct

from engine.access import credentials
from engine.access.changes import Add, Revoke
from engine.access.principals import Kind, Limits, Principal, Scope, key
from engine.access.usage import Used
from engine.errors import InvalidInput, UnknownPrincipal
from web import sending
from web.access.current import who
from web.keys import ENGINE, INTAKE
from web.wire import options
from web.wire.decoding import decode
from web.wire.forms import Form

Text = Annotated[str, Meta(max_length=500)]
Globs = Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(max_length=100)]


class NewKey(Struct, forbid_unknown_fields=True, rename={"service_class": "class"}):
    """What a new key is to be."""

    name: Text
    scopes: tuple[Scope, ...] = (Scope.CALL,)
    service_class: Text | None = None
    models: Globs = []
    rate: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    burst: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    concurrency: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    reason: Text = ""


def made(asked: NewKey) -> tuple[str, Principal]:
    """The secret and the row of a new key. Raises InvalidInput."""
    secret = credentials.new_key()
    burst = asked.burst or max(1, round(asked.rate or 1))
    try:
        row = key(
            credentials.public_part(secret) or "",
            asked.name,
            asked.scopes,
            time.time(),
            service_class=options.service_class(asked.service_class, "class"),
            models=tuple(asked.models),
            limits=Limits(asked.rate, burst, asked.concurrency),
        )
    except ValueError as error:
        raise InvalidInput(f"{error}.".capitalize()) from None
    return secret, row


def shown(principal: Principal, last_used: float | None) -> dict[str, Any]:
    """A key as lists tell it: everything but its secret. Times are seconds since the epoch."""
    limits, chosen = principal.limits, principal.service_class
    return {
        "id": principal.id.partition(":")[2],
        "name": principal.name,
        "scopes": list(principal.scopes),
        "class": None if chosen is None else chosen.name.lower(),
        "models": list(principal.models),
        "rate": limits.rate,
        "burst": limits.burst if limits.rate else None,
        "concurrency": limits.concurrency,
        "created": principal.created,
        "last_used": last_used,
        "revoked": principal.revoked,
    }


def found(principals: Mapping[str, Principal], said: str) -> Principal:
    """The key of this id, or the live one of this name. Raises UnknownPrincipal."""
    if by_id := principals.get(f"key:{said}"):
        return by_id
    for principal in principals.values():
        if principal.kind is Kind.KEY and principal.name == said and principal.revoked is None:
            return principal
    raise UnknownPrincipal(f"There is no key {said[:100]!r}.")


async def create(request: web.Request) -> web.Response:
    asked = decode(await request.app[INTAKE].body(request), Form.JSON, NewKey)
    access = request.app[ENGINE].access
    secret, principal = made(asked)
    await access.change(Add(principal, credentials.key_hash(secret)), who(request), asked.reason)
    return sending.small({"key": secret, **shown(principal, None)}, status=201)


async def list_keys(request: web.Request) -> web.Response:
    """With what each used since the server started."""
    access = request.app[ENGINE].access
    keys = [
        {**shown(key, access.last_used(key)), "used": asdict(access.usage.by.get(key.id, Used()))}
        for key in access.principals.values()
        if key.kind is Kind.KEY
    ]
    return sending.small({"keys": keys})


async def revoke(request: web.Request) -> web.Response:
    """It stops at once. `?reason=` is audited."""
    access = request.app[ENGINE].access
    key = found(access.principals, request.match_info["key"])
    await access.change(Revoke(key.id), who(request), request.query.get("reason", "")[:500])
    return sending.small(shown(access.principals[key.id], access.last_used(key)))
