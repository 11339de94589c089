"""`/console/playground`: call a model from the browser, by the same routes as every client."""

from __future__ import annotations

from aiohttp import web

from engine.catalog import ModelSpec
from web.console import pages
from web.console.hub import HUB


async def show(request: web.Request) -> web.Response:
    """`?model=` is chosen at first."""
    hub = request.app[HUB]
    context = {
        "offered": [_offered(spec) for spec in hub.engine.catalog],
        "wanted": request.query.get("model", "")[:300],
    }
    return await pages.page(request, "playground", context)


def _offered(spec: ModelSpec) -> dict[str, object]:
    return {
        "id": spec.id,
        "task": spec.tasks[0].value,
        "tasks": [task.value for task in spec.tasks],
        "inputs": list(spec.inputs),
        "outputs": [output.value for output in spec.outputs],
        "labels": list(spec.labels)[:20],
    }
