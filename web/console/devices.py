"""`/console/devices`: each ledger to the byte, who leaves first, and who would leave for so many bytes."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from engine.memory.outlook import Leaving
from engine.quantities import size
from engine.view import DeviceView
from web.console import pages
from web.console.bars import UNATTRIBUTED, Bar
from web.console.hub import HUB, Hub


@dataclass(frozen=True, slots=True)
class Shown:
    bar: Bar
    view: DeviceView
    entries: list[tuple[str, str, int]]
    leaving: list[Leaving]
    would: list[Leaving] | None
    """For the bytes that were asked about; None when all that may leave do not suffice."""


async def show(request: web.Request) -> web.Response:
    """`?bytes=2GiB`: who would leave if so much came now."""
    hub = request.app[HUB]
    await hub.look()
    said = request.query.get("bytes", "").strip()[:40]
    wanted, wrong = _wanted(said)
    shown = [_shown(hub, bar, view, wanted) for bar, view in zip(hub.bars, hub.view.devices, strict=True)]
    context = {
        "devices": shown,
        "asked": said,
        "wanted": wanted,
        "wrong": wrong,
        "unattributed": UNATTRIBUTED,
        "host": hub.view.host,
        "host_limit": hub.view.host_limit,
        "held": hub.view.held_bytes,
        "held_limit": hub.view.held_limit,
    }
    series = [f"device:{device.name}" for device in hub.view.devices]
    return await pages.page(request, "devices", context, cues=("devices",), series=series, rows=True)


def _wanted(said: str) -> tuple[int | None, str]:
    """Bytes, and what is wrong with how they were written."""
    if not said:
        return None, ""
    try:
        return size(said), ""
    except ValueError as error:
        return None, str(error)


def _shown(hub: Hub, bar: Bar, view: DeviceView, wanted: int | None) -> Shown:
    closely = hub.engine.closely
    return Shown(
        bar=bar,
        view=view,
        entries=closely.ledger(view.name),
        leaving=closely.leaving(view.name),
        would=closely.would_leave(view.name, wanted) if wanted else [],
    )
