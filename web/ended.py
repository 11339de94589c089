"""The one line that each request leaves when it is over: what it was, how it ended, where its time went."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from aiohttp import web

from engine.events import RequestDone
from engine.logs import request_fields
from web.keys import ARRIVED, ENGINE, REQUEST_ID

log = logging.getLogger(__name__)

PROBES = frozenset({"/healthz", "/livez", "/readyz"})


@dataclass(frozen=True, slots=True)
class Told:
    """Becomes fields only in the thread that writes them."""

    request_id: str
    method: str
    route: str
    status: int
    seconds: float
    done: RequestDone | None

    def fields(self) -> dict[str, object]:
        known = request_fields(self.done) if self.done is not None else {}
        return known | {
            "request_id": self.request_id,
            "method": self.method,
            "route": self.route,
            "status": self.status,
            "total_ms": round(self.seconds * 1000, 3),
        }


def done_of(request: web.Request) -> RequestDone | None:
    """How the engine's part of it ended; None where it had none, or has not ended yet."""
    done = request.app[ENGINE].closely.journal.by_id.get(request[REQUEST_ID])
    # Callers may use a name again: an earlier one's end is not this one's.
    return done if done is not None and done.arrived >= request[ARRIVED] else None


def say(request: web.Request, status: int, done: RequestDone | None) -> None:
    """Of the address only which route it is: the rest of it is the caller's own text."""
    level = logging.DEBUG if request.path in PROBES else logging.INFO
    if not log.isEnabledFor(level):
        return
    spent = request.app[ENGINE].now() - request[ARRIVED]
    # Made by hand: looking for the caller's file and line costs as much as all the rest.
    record = logging.LogRecord(log.name, level, __file__, 0, "request", None, None)
    record.told = Told(request[REQUEST_ID], request.method, route(request), status, spent, done)
    log.handle(record)


def route(request: web.Request) -> str:
    """The route's own form, as `/v1/encode/{model}`; `unknown` for an address that is none of ours."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "unknown"
