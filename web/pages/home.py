"""`/`: the console's first page for a browser; where everything is, for anything else."""

from __future__ import annotations

from aiohttp import web

import engine
from engine.access.principals import Action
from engine.errors import Forbidden
from web import sending
from web.access.current import may
from web.console import overview
from web.keys import ENGINE

LINKS = {
    "models": "/v1/models",
    "encode": "/v1/encode/{model}",
    "score": "/v1/score/{model}",
    "extract": "/v1/extract/{model}",
    "generate": "/v1/generate/{model}",
    "health": "/health",
    "ready": "/readyz",
    "metrics": "/metrics",
    "status": "/ws/status",
    "reference": "/openapi.json",
}


async def home(request: web.Request) -> web.Response:
    """Raises Forbidden for a key that may see models but not the console."""
    settings = request.app[ENGINE].settings
    if "text/html" in request.headers.get("Accept", ""):
        if not may(request, Action.INSPECT):
            raise Forbidden("This key is not for the console.")
        return await overview.show(request)
    links = {name: settings.base_path + path for name, path in LINKS.items()}
    answer = sending.small({"name": "serai", "version": engine.__version__, "links": links})
    answer.headers["Vary"] = "Accept"
    return answer
