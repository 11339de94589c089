"""`/account`: who one is, a new password, and the way out."""

from __future__ import annotations

import logging

import aiohttp_jinja2
from aiohttp import web

from engine.access import credentials
from engine.access.changes import NewPassword
from engine.access.principals import Kind
from engine.errors import EngineError, Forbidden, InvalidInput
from web import errors
from web.access import origin
from web.access.current import current
from web.access.form import fields
from web.access.login import DOOR, near, with_session
from web.keys import ENGINE

log = logging.getLogger(__name__)


async def page(request: web.Request) -> web.Response:
    return _page(request)


async def password(request: web.Request) -> web.Response:
    """A new one for whoever knows the old. Every session of theirs ends, and one begins here."""
    form, user = await fields(request), current(request)
    access, door = request.app[ENGINE].access, request.app[DOOR]
    if user is None or user.kind is not Kind.USER:
        raise Forbidden("Only a user who is logged in has a password.")
    address = near(origin.address(request))
    try:
        door.knock(address, user.name, request.app[ENGINE].now())
        kept = access.secret(user.id) or credentials.NOBODY
        if not await door.is_right(form.get("old", ""), kept):
            raise InvalidInput("This is not your password.")
        door.let_in(address, user.name)
        if form.get("password", "") != form.get("again", ""):
            raise InvalidInput("The new password was not typed the same way twice.")
        secret = await door.hashed(form.get("password", ""))
        await access.change(NewPassword(user.id, secret), user.id)
    except EngineError as error:
        log.warning("the password of %s was not changed: %s", user.id, error)
        return _page(request, error)
    return with_session(request, user, "/account?changed")


def _page(request: web.Request, error: EngineError | None = None) -> web.Response:
    """The page itself; with what was wrong, under the status of that error."""
    user = current(request)
    context = {
        "base": request.app[ENGINE].settings.base_path,
        "name": user.name if user else "",
        "role": user.role if user else None,
        "error": error.message if error else "",
        "changed": "changed" in request.query,
        "least": credentials.LEAST_PASSWORD,
    }
    status = errors.status(error) if error else 200
    answer = aiohttp_jinja2.render_template("account.html", request, context, status=status)
    if error:
        answer.headers.update(errors.headers(error))
    return answer
