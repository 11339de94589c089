"""`/console/live`: one stream a tab: what it has missed, then what changes, and cues for its panels."""

from __future__ import annotations

import time

import anyio
from aiohttp import web

from engine.access.principals import Action
from web import sending
from web.access.current import still
from web.console.hub import HUB, Hub, Watcher
from web.wire.pieces import json_bytes

CHECK = 5.0
"""Seconds after which it is asked again whether who watches still may."""
QUIET = 2.0
"""Seconds without a look after which a beat is sent: a tab that hears nothing for 3 s calls itself stale."""
MOST_NAMES = 8
BEAT = b"event: beat\ndata:\n\n"


async def stream(request: web.Request) -> web.StreamResponse:
    """Ends when the server stops, and when who watches no longer may."""
    hub = request.app[HUB]
    response = web.StreamResponse(headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"})
    response.content_type = "text/event-stream"
    await response.prepare(request)
    watcher = _watcher(request)
    hub.watch(watcher)
    try:
        await hub.look()
        await _tell(request, response, hub, watcher)
    finally:
        hub.leave(watcher)
    return response


def _watcher(request: web.Request) -> Watcher:
    query = request.query
    cues = frozenset(query.get("cues", "").split(",")[:MOST_NAMES]) - {""}
    series = tuple(name for name in query.get("series", "").split(",")[:MOST_NAMES] if name)
    hub = request.app[HUB]
    watcher = Watcher(cues, query.get("rows") == "1", series)
    watcher.frame = _frame(request.headers.get("Last-Event-ID", query.get("since", "")), hub)
    if watcher.frame == hub.frame:  # its page was made from what the cues say now
        watcher.heard = {cue: hub.cues.get(cue) for cue in cues}
    return watcher


def _frame(said: str, hub: Hub) -> int:
    """The frame that a tab has; -1, which is before all, for what another start of the server said."""
    boot, _, frame = said.partition("-")
    return int(frame) if boot == hub.boot and frame.isdecimal() else -1


async def _tell(request: web.Request, response: web.StreamResponse, hub: Hub, watcher: Watcher) -> None:
    checked = time.monotonic()
    while not hub.stopping:
        if time.monotonic() - checked >= CHECK:
            checked = time.monotonic()
            if not still(request, Action.INSPECT):
                return
        watcher.news = anyio.Event()
        if not await sending.write(response, news(hub, watcher) or BEAT):
            return
        with anyio.move_on_after(QUIET):
            await watcher.news.wait()


def news(hub: Hub, watcher: Watcher) -> bytes:
    """What the tab has not been told yet; nothing when there is nothing."""
    parts = []
    if watcher.frame < hub.frame:
        cells = hub.since(watcher.frame, watcher.rows)
        watcher.frame = hub.frame
        parts.append(_event("cells", json_bytes(cells), f"{hub.boot}-{hub.frame}"))
    for cue in sorted(watcher.cues):
        state = hub.cues.get(cue)
        if watcher.heard.get(cue, ...) != state:
            watcher.heard[cue] = state
            parts.append(_event(f"cue-{cue.partition(':')[0]}", b"1"))
    for name in watcher.series:
        columns = hub.sampler.columns(name, True, watcher.drawn.setdefault(name, hub.sampler.looked))
        if columns[0]:
            watcher.drawn[name] = columns[0][-1] or 0.0
            parts.append(_event("points", json_bytes({"series": name, "columns": columns})))
    return b"".join(parts)


def _event(name: str, data: bytes, id: str = "") -> bytes:
    head = f"event: {name}\n" + (f"id: {id}\n" if id else "")
    return head.encode() + b"data: " + data + b"\n\n"
