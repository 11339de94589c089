"""`/console/queues`: what waits, what runs, and what each device would serve next and why."""

from __future__ import annotations

from aiohttp import web

from web.console import pages
from web.console.hub import HUB


async def show(request: web.Request) -> web.Response:
    hub = request.app[HUB]
    await hub.look()
    closely = hub.engine.closely
    lanes, batches = closely.lanes(), closely.batches()
    context = {
        "lanes": lanes,
        "batches": batches,
        "waiting": sum(lane.jobs for lane in lanes),
        "upcoming": [(device.name, closely.next_up(device.name)) for device in hub.view.devices],
    }
    return await pages.page(request, "queues", context, cues=("queues",), series=("server",))
