"""What callers say of themselves in headers: who they are to us, how urgent it is, how long they wait."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Mapping

from engine.errors import InvalidInput
from engine.requests import ServiceClass
from web.wire import options

_SANE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,127}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
_MAX_SESSION = 256
_LONGEST_WAIT_MS = 86_400_000


def request_id(headers: Mapping[str, str]) -> str:
    """The caller's own, when it can stand in a log line; else a new one."""
    theirs = headers.get("X-Request-ID", "")
    return theirs if _SANE_ID.fullmatch(theirs) else secrets.token_hex(12)


def service_class(headers: Mapping[str, str]) -> ServiceClass | None:
    return options.service_class(headers.get("X-Serai-Class"), "X-Serai-Class")


def deadline(headers: Mapping[str, str], now: float) -> float:
    """When the caller stops waiting, on the clock of `now`; infinite when it did not say."""
    said = headers.get("X-Serai-Deadline-Ms")
    if said is None:
        return math.inf
    left = float(said) if _DECIMAL.fullmatch(said) else math.inf
    if left > _LONGEST_WAIT_MS:
        raise InvalidInput(
            "X-Serai-Deadline-Ms is how many milliseconds the caller waits from now: "
            f"a decimal number up to {_LONGEST_WAIT_MS}, which is a day."
        )
    return now + left / 1000


def principal(headers: Mapping[str, str], key: bytes) -> str:
    """Whose a request is on a server without keys: a keyed hash of the token it brings; empty without one."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return ""
    return _hashed(token.strip(), key)


def session(headers: Mapping[str, str], key: bytes) -> str | None:
    """What groups the calls of one pipeline: a keyed hash of its session or trace id."""
    named = headers.get("X-Serai-Session", "")[:_MAX_SESSION]
    if not named:
        traced = _TRACEPARENT.fullmatch(headers.get("traceparent", "").strip().lower())
        named = traced["trace"] if traced else ""
    if not named.strip("0"):
        return None
    return _hashed(named, key)


def _hashed(text: str, key: bytes) -> str:
    return hmac.new(key, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:16]
