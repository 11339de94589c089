"""`GET /openapi.json`: every route, what it takes and what it gives, as OpenAPI 3.1."""

from __future__ import annotations

from functools import partial
from typing import Any

from aiohttp import web
from anyio import to_thread

import engine as product
from web import sending
from web.keys import ENGINE, REFERENCE
from web.openapi.document import document as made


async def document(request: web.Request) -> web.Response:
    return sending.small(await of(request))


async def of(request: web.Request) -> dict[str, Any]:
    """Made once, which takes some 50 ms, so not on the event loop."""
    base_path = request.app[ENGINE].settings.base_path
    work = partial(made, request.app[REFERENCE], product.__version__, base_path)
    return await to_thread.run_sync(work)
