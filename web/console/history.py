"""`/console/audit`: who did what, when, why, how it was before and after, and how it ended."""

from __future__ import annotations

from aiohttp import web

from web.console import pages
from web.console.hub import HUB

SHOWN = 100
MOST = 1000


async def show(request: web.Request) -> web.Response:
    """`?of=` a model, a key or a user; `?rows=` how many."""
    hub, query = request.app[HUB], request.query
    target = query.get("of", "").strip()[:300]
    said = query.get("rows", "")
    rows = min(MOST, max(1, int(said))) if said.isascii() and said.isdecimal() and len(said) < 6 else SHOWN
    acts = await hub.engine.operators.history(rows, target or None)
    context = {"acts": acts, "of": target, "more": len(acts) == rows < MOST}
    return await pages.page(request, "audit", context, cues=("audit",))
