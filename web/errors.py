"""What an error is on the wire: one table of statuses, one envelope, one rule for Retry-After."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import web

from engine import errors
from engine.errors import EngineError


class NotFound(EngineError):
    """There is nothing at this address. GET / lists what there is."""

    code = "NOT_FOUND"


class MethodNotAllowed(EngineError):
    """This address does not take that method."""

    code = "METHOD_NOT_ALLOWED"


class NotOffered(EngineError):
    """This server has no such thing; a cluster with a control plane has."""

    code = "NOT_IMPLEMENTED"


class ResultGone(EngineError):
    """This address of results is over, or its results are; ask the job for its new ones."""

    code = "RESULT_NOT_FOUND"


STATUS: Mapping[type[EngineError], int] = {
    errors.InvalidInput: 400,
    errors.InputTooLong: 400,
    errors.ImageTooLarge: 400,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.UnknownModel: 404,
    errors.UnknownPrincipal: 404,
    errors.UnknownRecording: 404,
    errors.UnknownFile: 404,
    NotFound: 404,
    NotOffered: 404,
    ResultGone: 404,
    MethodNotAllowed: 405,
    # Not 504: the published client would send the request again until its whole budget is spent.
    errors.DeadlineExceeded: 408,
    errors.StillBusy: 409,
    errors.StateChanged: 409,
    errors.BodyTooLarge: 413,
    errors.CatalogRejected: 422,
    errors.WeightsUnavailable: 424,
    errors.RateLimited: 429,
    errors.InferenceFailed: 500,
    errors.LoadFailed: 502,
    errors.StillLoading: 503,
    errors.Paused: 503,
    errors.QueueFull: 503,
    errors.ResourceExhausted: 503,
    errors.RunnerCrashed: 503,
    errors.Stopped: 503,
    errors.NoRoom: 507,
    errors.StorageFull: 507,
    EngineError: 500,
}

# The client sends this code again three times at most: the request may be what killed the runner.
_WIRE_CODE: Mapping[type[EngineError], str] = {errors.RunnerCrashed: errors.ResourceExhausted.code}

_FINAL = (408, 500, 502, 507)
"""Where no time is told, another try ends the same. OpenAI's clients would send these again unasked."""


def status(error: EngineError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def code(error: EngineError) -> str:
    return _WIRE_CODE.get(type(error), error.code)


def headers(error: EngineError) -> dict[str, str]:
    """`X-SIE-Error-Code`, and how many seconds to wait where waiting helps. No 503 lacks either."""
    found = {"X-SIE-Error-Code": code(error)}
    wait = error.retry_after
    if wait is None and status(error) == HTTPStatus.SERVICE_UNAVAILABLE:
        wait = 1.0
    if wait is not None and math.isfinite(wait):
        found["Retry-After"] = f"{wait:.3f}".rstrip("0").rstrip(".")
    elif status(error) in _FINAL:
        found["X-Should-Retry"] = "false"
    if status(error) == HTTPStatus.UNAUTHORIZED:
        found["WWW-Authenticate"] = 'Bearer realm="serai"'
    return found


def foreign_headers(error: EngineError) -> dict[str, str]:
    """The same for clients of other APIs, some of which pass over a fraction: whole seconds, as HTTP has
    it, and `Retry-After-Ms`, where others look first."""
    found = headers(error)
    if (said := found.get("Retry-After")) is not None:
        wait = float(said)
        found |= {"Retry-After": str(math.ceil(wait)), "Retry-After-Ms": f"{wait * 1000:.0f}"}
    return found


def envelope(error: EngineError, request_id: str) -> dict[str, Any]:
    """The body that clients of the native routes read."""
    item = {} if error.item is None else {"item": error.item}
    said = {"code": code(error), "message": error.message, **item, "request_id": request_id}
    return {"detail": {**error.details, **said}}


def of_http(error: web.HTTPException, request: web.Request) -> EngineError:
    """What the HTTP library refused, as one of ours."""
    where = repr(request.path[:200])
    if error.status == HTTPStatus.NOT_FOUND:
        return NotFound(f"There is nothing at {where}. GET / lists what there is.")
    if error.status == HTTPStatus.METHOD_NOT_ALLOWED:
        return MethodNotAllowed(f"{where} does not take {request.method}, only {error.headers['Allow']}.")
    if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return errors.InvalidInput(error.text)
    return EngineError()
