"""What a browser is shown where it asked for a page and there is none."""

from __future__ import annotations

from http import HTTPStatus

import aiohttp_jinja2
from aiohttp import hdrs, web

from engine.errors import EngineError
from web import errors
from web.keys import ENGINE, REQUEST_ID
from web.wire import forms


def wanted(request: web.Request) -> bool:
    """Whether a person looks: what htmx asks for goes into a page that is there already."""
    looks = request.method in ("GET", "HEAD") and "HX-Request" not in request.headers
    return looks and forms.prefers_page(request.headers.get(hdrs.ACCEPT))


def page(request: web.Request, error: EngineError) -> web.Response:
    status = errors.status(error)
    context = {
        "base": request.app[ENGINE].settings.base_path,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": errors.code(error),
        "message": error.message,
        "request_id": request[REQUEST_ID],
    }
    answer = aiohttp_jinja2.render_template("wrong.html", request, context, status=status)
    answer.headers[hdrs.VARY] = "Accept, HX-Request"
    return answer
