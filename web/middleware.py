"""What every request passes before its handler: a name and a log line, errors, and who may ask."""

from __future__ import annotations

import ipaddress
import logging
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler
from structlog.contextvars import bind_contextvars, clear_contextvars

from engine.config import Settings
from engine.errors import EngineError, Forbidden, Stopped
from web import caller, cors, dialects, ended, errors, sending
from web.access import origin
from web.access.guard import guarded
from web.ended import PROBES
from web.keys import ARRIVED, ENGINE, REQUEST_ID, SPAN, TRACING
from web.pages import wrong
from web.tracing.life import Moments
from web.turnstile import paced
from web.wire import forms

log = logging.getLogger(__name__)

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


@web.middleware
async def named(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Gives the request its id, and one log line when it is over. Nothing of its content is logged."""
    engine = request.app[ENGINE]
    request[REQUEST_ID] = caller.request_id(request.headers)
    request[ARRIVED] = engine.now()
    status = 499  # what others call a client that left
    # One task serves all requests of a connection: what the last one was must not stay.
    clear_contextvars()
    bind_contextvars(request_id=request[REQUEST_ID])
    tracing = request.app.get(TRACING)
    if tracing is not None:
        request[SPAN] = tracing.began(request.headers)
    try:
        response = await handler(request)
        status = response.status
        return response
    finally:
        done = ended.done_of(request)
        ended.say(request, status, done)
        if tracing is not None:
            moments = Moments(request[ARRIVED], engine.now(), status, request.method, ended.route(request))
            tracing.ended(request[SPAN], moments, done)


@web.middleware
async def refusing(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns whatever is raised into one envelope. This is the edge's last resort."""
    try:
        return await handler(request)
    except EngineError as error:
        return refusal(request, error)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        response = refusal(request, errors.of_http(error, request))
        if hdrs.ALLOW in error.headers:
            response.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
        return response
    except Exception:
        log.exception("%s failed", request[REQUEST_ID])
        return refusal(request, EngineError())


def refusal(request: web.Request, error: EngineError) -> web.Response:
    """The error as an answer, in a form that the client reads."""
    path = request.path.removeprefix(request.app[ENGINE].settings.base_path)
    if told := dialects.of(path):
        status, said = told(error, request[REQUEST_ID])
        response = sending.small(said, status=status)
        response.headers.update(errors.foreign_headers(error))
        return response
    if wrong.wanted(request):
        response = wrong.page(request, error)
    else:
        form = forms.of_error(request.headers.get(hdrs.ACCEPT))
        body = errors.envelope(error, request[REQUEST_ID])
        response = sending.small(body, status=errors.status(error), form=form)
    response.headers.update(errors.headers(error))
    return response


@web.middleware
async def hosted(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Only names that are ours: a page elsewhere must not reach us by pointing its own name here.

    Probes come by whatever address a machine has, and are told nothing.
    """
    if request.path not in PROBES:
        _check_host(request.headers.get(hdrs.HOST, ""), request.app[ENGINE].settings)
    return await handler(request)


def _check_host(said: str, settings: Settings) -> None:
    try:
        name = (urlsplit(f"//{said}").hostname or "").rstrip(".")
    except ValueError:
        name = ""
    ours = {"localhost", settings.host.strip("[]"), *settings.allowed_hosts}
    if name in {known.lower() for known in ours} or _is_ours(name, settings.host.strip("[]")):
        return
    raise Forbidden(f"The Host header names {said[:100]!r}. If that is this server, add it to allowed_hosts.")


def _is_ours(name: str, bound: str) -> bool:
    """A loopback address; any address, when we listen on all: no name can be pointed at those."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or bound in ("0.0.0.0", "::")


@web.middleware
async def same_site(request: web.Request, handler: Handler) -> web.StreamResponse:
    """No page of another site may change anything here, nor open a socket, with a visitor's browser."""
    opens_socket = request.headers.get(hdrs.UPGRADE, "").lower() == "websocket"
    if (request.method not in SAFE_METHODS or opens_socket) and not cors.admitted(request):
        origin.check_site(request)
    return await handler(request)


@web.middleware
async def draining(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Nothing new while the server stops; what may be looked at stays."""
    if request.method not in SAFE_METHODS and not request.app[ENGINE].accepting:
        raise Stopped
    return await handler(request)


async def common_headers(request: web.Request, response: web.StreamResponse) -> None:
    """On every response, streams and sockets too, at the moment it starts."""
    said = response.headers
    said["X-SIE-Server-Version"] = request.app[ENGINE].settings.server_version
    said["X-SIE-Request-ID"] = request[REQUEST_ID]
    said["X-Request-ID"] = request[REQUEST_ID]
    said["X-Content-Type-Options"] = "nosniff"
    said.setdefault("Content-Security-Policy", CONTENT_POLICY)
    said["Referrer-Policy"] = "no-referrer"
    said["Cross-Origin-Resource-Policy"] = "same-origin"
    said[hdrs.SERVER] = "serai"
    said.setdefault(hdrs.CACHE_CONTROL, "no-store")


MIDDLEWARES = (named, paced, refusing, hosted, cors.cors, same_site, guarded, draining)
"""Outermost first."""
