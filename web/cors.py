"""Pages of other sites that may call the models from a browser: those in `cors_origins`, none by default.

Calls only, and what they would cost: nothing that an operator does, no page, and nothing with a cookie.
"""

from __future__ import annotations

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from web.dialects.tei import ASKED
from web.keys import ENGINE

CALLS = (
    "/v1/encode/",
    "/v1/score/",
    "/v1/extract/",
    "/v1/generate/",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/embeddings",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/rerank",
    "/v2/rerank",
    "/v1/estimate",
    "/tei/",
    *ASKED,
)
LISTS = "/v1/models"
MAX_AGE = "600"
"""Seconds for which a browser need not ask again."""


def admitted(request: web.Request) -> bool:
    """Whether a page that the settings name may send this."""
    return _origin(request) is not None and hdrs.COOKIE not in request.headers


@web.middleware
async def cors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers what browsers ask before they let a page send its request."""
    asked = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_METHOD)
    if request.method != "OPTIONS" or asked is None or _origin(request) is None:
        return await handler(request)
    said: dict[str, str] = {
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: "GET, POST",
        hdrs.ACCESS_CONTROL_ALLOW_HEADERS: request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, ""),
        hdrs.ACCESS_CONTROL_MAX_AGE: MAX_AGE,
    }
    if "Access-Control-Request-Private-Network" in request.headers:
        said["Access-Control-Allow-Private-Network"] = "true"
    return web.Response(status=204, headers=said)


async def cors_headers(request: web.Request, response: web.StreamResponse) -> None:
    """On every response, refusals too: without them a page is not even told why."""
    if not request.app[ENGINE].settings.cors_origins:
        return
    response.headers.add(hdrs.VARY, hdrs.ORIGIN)
    if origin := _origin(request):
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
        response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = "*"


def _origin(request: web.Request) -> str | None:
    """The page's origin, when it may send such a request."""
    settings = request.app[ENGINE].settings
    origin = request.headers.get(hdrs.ORIGIN, "")
    named = {each.rstrip("/").lower() for each in settings.cors_origins}
    if not origin or not ("*" in named or origin.lower() in named):
        return None
    path = request.path.removeprefix(settings.base_path)
    asked = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_METHOD) if request.method == "OPTIONS" else None
    method = asked or request.method
    if method == "GET" and (path == LISTS or path.startswith(f"{LISTS}/")):
        return origin
    return origin if method == "POST" and path.startswith(CALLS) else None
