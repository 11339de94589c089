"""`/`: how the server is, for a browser; where everything is, for anything else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import aiohttp_jinja2
from aiohttp import web

import engine
from engine.quantities import about
from engine.view import DeviceView, EngineView, ModelView
from web import sending
from web.keys import ENGINE

REFRESH = 3
"""Seconds after which the page asks for itself again. It has no script."""

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
}
_ORDER = {"loaded": 0, "loading": 1, "unloading": 2, "failed": 3, "available": 4}


async def home(request: web.Request) -> web.Response:
    settings = request.app[ENGINE].settings
    if "text/html" not in request.headers.get("Accept", ""):
        links = {name: settings.base_path + path for name, path in LINKS.items()}
        answer = sending.small({"name": "serai", "version": engine.__version__, "links": links})
        answer.headers["Vary"] = "Accept"
        return answer
    context = {"base": settings.base_path, **shown(request.app[ENGINE].view())}
    page = aiohttp_jinja2.render_template("status.html", request, context)
    page.headers["Vary"] = "Accept"
    return page


def shown(view: EngineView) -> dict[str, Any]:
    """What the page says, in words and numbers that are ready to be read."""
    models = sorted(view.models, key=lambda model: (_ORDER.get(model.state, 9), model.id))
    return {
        "version": engine.__version__,
        "refresh": REFRESH,
        "accepting": view.accepting,
        "devices": [_device(device) for device in view.devices],
        "models": [_model(model) for model in models],
        "waiting": sum(model.waiting for model in models),
        "in_flight": sum(model.in_flight for model in models),
        "held": about(view.held_bytes),
        "totals": dict(view.totals),
    }


def _device(device: DeviceView) -> dict[str, Any]:
    return {
        "name": device.name,
        "used": device.used_bytes,
        "budget": device.budget_bytes,
        "high": int(device.budget_bytes * 0.9),
        "said": f"{about(device.used_bytes)} of {about(device.budget_bytes)}",
        "lines": [(name, about(size)) for name, size in device.lines.items() if size],
        "slots": f"{device.busy_slots} of {device.slots}",
    }


def _model(model: ModelView) -> dict[str, Any]:
    here = [r for r in model.residencies if r.weights_bytes and r.state != "absent"]
    return {
        "id": model.id,
        "state": model.state,
        "pinned": any(r.pinned for r in model.residencies),
        "where": ", ".join(sorted({r.device for r in here})),
        "bytes": about(sum(r.weights_bytes for r in here)) if here else "",
        "waiting": model.waiting,
        "oldest": f"{model.oldest:.1f} s" if model.waiting else "",
        "in_flight": model.in_flight,
        "loads": model.loads,
        "evictions": model.evictions,
        "why": "; ".join(_reasons(model)),
    }


def _reasons(model: ModelView) -> Iterator[str]:
    """A load that failed is told by the error and by the residency: once is enough."""
    error = str((model.last_error or {}).get("message", ""))
    if error:
        yield error
    yield from dict.fromkeys(r.why for r in model.residencies if r.why and r.why != error)
