"""Sessions of the console's users: a signed cookie that says who, since when, and when last.

Nothing of a session is stored until it is left. Its signature is keyed with what is kept of the user's
password too, so a new password, or the user's removal, ends every session of theirs.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from dataclasses import dataclass, replace

from aiohttp import web

from engine.access.access import Access
from engine.access.principals import Principal

IDLE = 8 * 3600.0
"""Seconds without a request after which a session is over."""
LONGEST = 7 * 86400.0
"""Seconds after which it is over however busy it was."""
ROTATE = 300.0
"""Seconds after which a cookie is replaced by one that says when it was used last."""

NAME = "serai_session"
SECURE_NAME = f"__Host-{NAME}"
"""Browsers let nobody but this very host set a cookie of this name; over plain HTTP they refuse it."""


@dataclass(frozen=True, slots=True)
class Session:
    """Times are seconds since the epoch: a session outlasts the process."""

    id: str
    user: str
    began: float
    seen: float

    @property
    def until(self) -> float:
        return self.began + LONGEST


def begin(user: Principal, now: float) -> Session:
    return Session(secrets.token_urlsafe(16), user.name, now, now)


def renewed(session: Session, now: float) -> Session | None:
    """The session as it is to be told again; None while what the browser has is fresh."""
    return replace(session, seen=now) if now - session.seen >= ROTATE else None


def signed(session: Session, access: Access) -> str:
    """The cookie's value."""
    text = f"{session.id}:{session.began:.0f}:{session.seen:.0f}:{session.user}"
    body = urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return f"{body}.{_signature(body, session.user, access)}"


def read(value: str, access: Access, now: float) -> tuple[Session, Principal] | None:
    """Whose session it is; None for one that is forged, over, left, or of a user who is gone."""
    body, _, signature = value.partition(".")
    try:
        text = urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode()
        id, began, seen, user = text.split(":")
        session = Session(id, user, float(began), float(seen))
    except (Error, ValueError):
        return None
    found = access.user(user)
    if found is None or not hmac.compare_digest(signature.encode(), _signature(body, user, access).encode()):
        return None
    over = now - session.seen >= IDLE or now >= session.until
    return None if over or access.ended(session.id) else (session, found)


def of(request: web.Request) -> str | None:
    """The cookie's value, by either name."""
    return request.cookies.get(SECURE_NAME) or request.cookies.get(NAME)


def give(response: web.StreamResponse, session: Session, access: Access, *, secure: bool) -> None:
    response.set_cookie(
        SECURE_NAME if secure else NAME,
        signed(session, access),
        max_age=int(IDLE),
        path="/",
        secure=secure,
        httponly=True,
        samesite="Strict",
    )


def take(response: web.StreamResponse) -> None:
    """Have the browser forget it."""
    for name in (NAME, SECURE_NAME):
        response.del_cookie(name, path="/", secure=name == SECURE_NAME, httponly=True, samesite="Strict")


def _signature(body: str, user: str, access: Access) -> str:
    kept = access.secret(f"user:{user}") or ""
    key = hmac.digest(access.cookie_key, kept.encode(), "sha256")
    return hmac.new(key, body.encode(), hashlib.sha256).hexdigest()
