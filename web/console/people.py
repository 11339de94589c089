"""`/console/people`: keys and users, for an admin. A key's secret is shown once, when it is made."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import hdrs, web

from engine.access.changes import Add, Change, NewPassword, NewRole, Revoke
from engine.access.credentials import key_hash
from engine.access.principals import Kind, Role, Scope
from engine.errors import EngineError, InvalidInput
from engine.requests import ServiceClass
from web import errors
from web.access import keys, users
from web.access.current import who
from web.access.form import fields
from web.access.login import DOOR
from web.console import pages
from web.keys import ENGINE


async def show(request: web.Request) -> web.Response:
    return await _page(request)


async def act(request: web.Request) -> web.Response:
    """Back to the page by 303; what is wrong with a form is told on the page, and so is a new key."""
    form = await fields(request)
    try:
        change, secret = await _change(request, form)
        await request.app[ENGINE].access.change(change, who(request), form.get("reason", "")[:500])
    except EngineError as error:
        return await _page(request, error=error)
    if secret:
        return await _page(request, secret=secret)
    base = request.app[ENGINE].settings.base_path
    return web.Response(status=303, headers={hdrs.LOCATION: f"{base}/console/people"})


async def _change(request: web.Request, form: Mapping[str, str]) -> tuple[Change, str]:
    """What the form asks for, and the secret of a new key."""
    said, name = form.get("act", ""), form.get("name", "").strip()
    if said == "add-key":
        secret, row = keys.made(_new_key(name, form))
        return Add(row, key_hash(secret)), secret
    if said == "add-user":
        made = users.new(name, _role(form))
        return Add(made, await request.app[DOOR].hashed(form.get("password", ""))), ""
    if said == "role":
        return NewRole(_known(request, form), _role(form)), ""
    if said == "password":
        kept = await request.app[DOOR].hashed(form.get("password", ""))
        return NewPassword(_known(request, form), kept), ""
    if said == "revoke":
        return Revoke(_known(request, form)), ""
    raise InvalidInput("This form asks for nothing that the server knows.")


def _new_key(name: str, form: Mapping[str, str]) -> keys.NewKey:
    """Raises InvalidInput for what `/v1/admin/keys` would refuse."""
    said = {
        "name": name,
        "scopes": [_scope(form)],
        "class": form.get("class") or None,
        "models": form.get("models", "").replace(",", " ").split(),
        **{key: _number(form, key) for key in ("rate", "burst", "concurrency")},
    }
    try:
        return msgspec.convert(said, keys.NewKey, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{error}.") from None


def _number(form: Mapping[str, str], key: str) -> str | None:
    return form.get(key, "").strip()[:20] or None


def _scope(form: Mapping[str, str]) -> Scope:
    try:
        return Scope(form.get("scope", ""))
    except ValueError:
        raise InvalidInput(f"A scope is one of {', '.join(Scope)}.") from None


def _role(form: Mapping[str, str]) -> Role:
    try:
        return Role(form.get("role", ""))
    except ValueError:
        raise InvalidInput(f"A role is one of {', '.join(Role)}.") from None


def _known(request: web.Request, form: Mapping[str, str]) -> str:
    target = form.get("target", "")
    if target not in request.app[ENGINE].access.principals:
        raise InvalidInput("There is no such key or user.")
    return target


async def _page(request: web.Request, *, error: EngineError | None = None, secret: str = "") -> web.Response:
    access = request.app[ENGINE].access
    found = sorted(access.principals.values(), key=lambda p: (p.revoked is not None, p.created))
    context = {
        "keys": [(p, access.last_used(p), access.usage.by.get(p.id)) for p in found if p.kind is Kind.KEY],
        "users": [(p, access.last_used(p)) for p in found if p.kind is Kind.USER],
        "scopes": list(Scope),
        "roles": list(Role),
        "classes": [each.name.lower() for each in ServiceClass],
        "error": error,
        "secret": secret,
        "open": access.open,
    }
    status = errors.status(error) if error else 200
    return await pages.page(request, "people", context, status=status)
