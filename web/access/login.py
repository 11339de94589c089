"""The way in for people: the login page, the first user, and the way out."""

from __future__ import annotations

import ipaddress
import logging
import math
import time
from dataclasses import dataclass, field

import aiohttp_jinja2
from aiohttp import hdrs, web
from anyio import CapacityLimiter, to_thread

from engine.access import credentials
from engine.access.changes import Add
from engine.access.limits import Backoff
from engine.access.principals import Principal, Role, user
from engine.errors import EngineError, InvalidInput, QueueFull, RateLimited
from web import errors
from web.access import origin, sessions
from web.access.form import fields
from web.keys import ENGINE

log = logging.getLogger(__name__)

LONGEST_ADDRESS = 900.0
"""Seconds that an address may be kept waiting, at most."""
LONGEST_USER = 60.0
"""And a user: whoever knows a name must not keep its owner out."""
CHECKING = 2
"""Passwords checked at once: each takes 32 MiB and a thread."""
MOST_WAITING = 16


@dataclass(slots=True)
class Door:
    """Who tried in vain, and how many passwords are being checked."""

    addresses: Backoff = field(default_factory=lambda: Backoff(LONGEST_ADDRESS))
    users: Backoff = field(default_factory=lambda: Backoff(LONGEST_USER))
    checking: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(CHECKING))

    def knock(self, address: str, name: str, now: float) -> None:
        """A try counts as a mistake until it was right, so that many at once gain nothing.

        Raises RateLimited after too many mistakes, QueueFull when many others try.
        """
        if wait := max(self.addresses.wait(address, now), self.users.wait(name, now)):
            raise RateLimited(f"Too many wrong passwords; try again in {math.ceil(wait)} s.").after(wait)
        if self.checking.statistics().tasks_waiting >= MOST_WAITING:
            raise QueueFull("Too many people log in at this moment; try again.").after(2.0)
        self.addresses.mistake(address, now)
        self.users.mistake(name, now)

    def let_in(self, address: str, name: str) -> None:
        self.addresses.right(address)
        self.users.right(name)

    async def is_right(self, password: str, kept: str) -> bool:
        return await to_thread.run_sync(credentials.password_is, password, kept, limiter=self.checking)

    async def hashed(self, password: str) -> str:
        """Raises InvalidInput for a password that is too short."""
        try:
            return await to_thread.run_sync(credentials.password_hash, password, limiter=self.checking)
        except ValueError as error:
            raise InvalidInput(f"{error}.".capitalize()) from None


DOOR: web.AppKey[Door] = web.AppKey("door")


async def page(request: web.Request) -> web.Response:
    """The form, or the first user's form while there is none. Who is in already is sent on."""
    access = request.app[ENGINE].access
    wanted = request.query.get("next", "")
    cookie = sessions.of(request)
    if access.open or (cookie and sessions.read(cookie, access, time.time())):
        return _onward(request, wanted)
    return _page(request, wanted)


async def enter(request: web.Request) -> web.Response:
    """A name and a password become a session."""
    form = await fields(request)
    wanted, name = form.get("next", ""), form.get("name", "").strip().lower()
    access, door = request.app[ENGINE].access, request.app[DOOR]
    address = near(origin.address(request))
    try:
        door.knock(address, name, request.app[ENGINE].now())
    except EngineError as error:
        log.warning("login of %r from %s refused: %s", name[:64], address, error)
        return _page(request, wanted, error)
    found = access.user(name)
    kept = (access.secret(found.id) if found else None) or credentials.NOBODY
    if not await door.is_right(form.get("password", ""), kept) or found is None:
        log.warning("login of %r from %s failed", name[:64], address)
        return _page(request, wanted, InvalidInput("This name and password do not belong together."))
    door.let_in(address, name)
    log.info("%s logged in from %s", found.id, address)
    return with_session(request, found, wanted)


async def first(request: web.Request) -> web.Response:
    """The token that was printed at the start makes the first user, an admin; then it is used up."""
    form = await fields(request)
    access, door = request.app[ENGINE].access, request.app[DOOR]
    address, invitation = near(origin.address(request)), access.invitation
    try:
        door.knock(address, "", request.app[ENGINE].now())
        if invitation is None or not credentials.same(form.get("token", "").strip(), invitation):
            raise InvalidInput("This is not the token that the server printed when it started.")
        made = _new_user(form.get("name", ""))
        secret = await door.hashed(form.get("password", ""))
        if access.invitation != invitation:  # somebody else was faster, while the password was hashed
            raise InvalidInput("The first user has been made meanwhile; log in.")
        access.invitation = None
        try:
            await access.change(Add(made, secret), "first-run token")
        except EngineError:
            access.invitation = invitation
            raise
    except EngineError as error:
        log.warning("the first user could not be made from %s: %s", address, error)
        return _page(request, "", error)
    door.let_in(address, "")
    return with_session(request, made, "")


async def leave(request: web.Request) -> web.Response:
    """The session ends on the server too: a copy of its cookie is worth nothing afterwards."""
    access, cookie = request.app[ENGINE].access, sessions.of(request)
    if cookie and (found := sessions.read(cookie, access, time.time())):
        session, _ = found
        await access.end_session(session.id, session.until)
    response = web.Response(status=303, headers={hdrs.LOCATION: _login(request)})
    sessions.take(response)
    return response


def near(address: str) -> str:
    """What counts as one address: of IPv6 a whole /64, which is what one home is given."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == 6 else address


def _new_user(name: str) -> Principal:
    try:
        return user(name.strip().lower(), Role.ADMIN, time.time())
    except ValueError as error:
        raise InvalidInput(f"{error}.".capitalize()) from None


def with_session(request: web.Request, principal: Principal, wanted: str) -> web.Response:
    """On to the page that was asked for, with a session that begins now."""
    response = _onward(request, wanted)
    session = sessions.begin(principal, time.time())
    sessions.give(response, session, request.app[ENGINE].access, secure=origin.https(request))
    return response


def _onward(request: web.Request, wanted: str) -> web.Response:
    """To the page that was asked for, on this server only."""
    base = request.app[ENGINE].settings.base_path
    path = wanted.removeprefix(base)
    ours = path.startswith("/") and not path.startswith(("//", "/\\", "/login")) and path.isprintable()
    return web.Response(status=303, headers={hdrs.LOCATION: base + (path if ours else "/")})


def _login(request: web.Request) -> str:
    return f"{request.app[ENGINE].settings.base_path}/login"


def _page(request: web.Request, wanted: str, error: EngineError | None = None) -> web.Response:
    """The page itself; with what was wrong, under the status of that error."""
    settings, access = request.app[ENGINE].settings, request.app[ENGINE].access
    context = {
        "base": settings.base_path,
        "next": wanted,
        "first": access.invitation is not None,
        "no_users": not access.has_users,
        "error": error.message if error else "",
        "least": credentials.LEAST_PASSWORD,
    }
    status = errors.status(error) if error else 200
    answer = aiohttp_jinja2.render_template("login.html", request, context, status=status)
    if error:
        answer.headers.update(errors.headers(error))
    return answer
