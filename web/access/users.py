"""`/v1/admin/users`: the console's users over HTTP."""

from __future__ import annotations

import time
from typing import Annotated, Any

from aiohttp import web
from msgspec import Meta, Struct

from engine.access.changes import Add, NewPassword, NewRole, Revoke
from engine.access.principals import Kind, Principal, Role, user
from engine.errors import InvalidInput, UnknownPrincipal
from web import sending
from web.access.current import who
from web.access.keys import Text
from web.access.login import DOOR
from web.keys import ENGINE, INTAKE
from web.wire.decoding import decode
from web.wire.forms import Form

Password = Annotated[str, Meta(max_length=2000)]


class NewUser(Struct, forbid_unknown_fields=True):
    name: Text
    password: Password
    role: Role = Role.VIEWER
    reason: Text = ""


class Rekeyed(Struct, forbid_unknown_fields=True):
    """A new password."""

    password: Password
    reason: Text = ""


class Reroled(Struct, forbid_unknown_fields=True):
    """Another role."""

    role: Role
    reason: Text = ""


def shown(principal: Principal, last_used: float | None) -> dict[str, Any]:
    return {
        "name": principal.name,
        "role": principal.role,
        "created": principal.created,
        "last_used": last_used,
        "removed": principal.revoked,
    }


def new(name: str, role: Role) -> Principal:
    """Raises InvalidInput for a name that will not do."""
    try:
        return user(name.strip().lower(), role, time.time())
    except ValueError as error:
        raise InvalidInput(f"{error}.".capitalize()) from None


async def create(request: web.Request) -> web.Response:
    asked = decode(await request.app[INTAKE].body(request), Form.JSON, NewUser)
    made = new(asked.name, asked.role)
    secret = await request.app[DOOR].hashed(asked.password)
    await request.app[ENGINE].access.change(Add(made, secret), who(request), asked.reason)
    return sending.small(shown(made, None), status=201)


async def list_users(request: web.Request) -> web.Response:
    access = request.app[ENGINE].access
    users = [shown(p, access.last_used(p)) for p in access.principals.values() if p.kind is Kind.USER]
    return sending.small({"users": users})


async def remove(request: web.Request) -> web.Response:
    """Their sessions end at once. `?reason=` is audited."""
    reason = request.query.get("reason", "")[:500]
    await request.app[ENGINE].access.change(Revoke(_id(request)), who(request), reason)
    return _shown(request)


async def password(request: web.Request) -> web.Response:
    """Their sessions end with the old one."""
    asked = decode(await request.app[INTAKE].body(request), Form.JSON, Rekeyed)
    secret = await request.app[DOOR].hashed(asked.password)
    await request.app[ENGINE].access.change(NewPassword(_id(request), secret), who(request), asked.reason)
    return _shown(request)


async def role(request: web.Request) -> web.Response:
    asked = decode(await request.app[INTAKE].body(request), Form.JSON, Reroled)
    await request.app[ENGINE].access.change(NewRole(_id(request), asked.role), who(request), asked.reason)
    return _shown(request)


def _id(request: web.Request) -> str:
    return f"user:{request.match_info['user']}"


def _shown(request: web.Request) -> web.Response:
    access = request.app[ENGINE].access
    found = access.principals.get(_id(request))
    if found is None:
        raise UnknownPrincipal
    return sending.small(shown(found, access.last_used(found)))
