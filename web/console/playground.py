"""`/console/playground`: call a model from the browser, by the same routes as every client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiohttp import web

from engine.catalog import Catalog, ModelSpec
from engine.units import adapted
from web.console import pages
from web.console.hub import HUB
from web.console.rows import Row, chosen


async def show(request: web.Request) -> web.Response:
    """`?model=` is chosen at first; else the model that answers soonest."""
    hub = request.app[HUB]
    await hub.look()
    context = {
        "groups": _grouped(chosen(hub.rows, "", "", "activity"), hub.engine.catalog),
        "wanted": request.query.get("model", "")[:300],
    }
    return await pages.page(request, "playground", context)


def _grouped(rows: Sequence[Row], catalog: Catalog) -> Mapping[str, list[dict[str, object]]]:
    """Models by how soon they could answer, under the name of each such group."""
    groups: dict[str, list[dict[str, object]]] = {"Loaded": [], "Weights in a package or here": []}
    for row in rows:
        if spec := catalog.models.get(row.id):
            groups.setdefault(_group(row), []).extend(_offered(spec))
    return {name: offered for name, offered in groups.items() if offered}


def _group(row: Row) -> str:
    if row.state in ("loaded", "loading"):
        return "Loaded"
    return "Weights from a hub" if row.remote else "Weights in a package or here"


def _offered(spec: ModelSpec) -> list[dict[str, object]]:
    """The model, and with each of its adapters."""
    return [_called(spec, name) for name in (spec.id, *(adapted(spec.id, each) for each in spec.loras))]


def _called(spec: ModelSpec, name: str) -> dict[str, object]:
    return {
        "id": name,
        "task": spec.tasks[0].value,
        "tasks": [task.value for task in spec.tasks],
        "inputs": list(spec.inputs),
        "outputs": [output.value for output in spec.outputs],
        "labels": list(spec.labels)[:20],
    }
