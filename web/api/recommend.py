"""`POST /v1/recommend`: a model for a task, of those that can be asked here now."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web
from anyio import to_thread

from engine.access.principals import may_call
from engine.catalog import ModelSpec
from engine.sources.locate import Sources
from engine.view import ModelView
from web import sending
from web.api.openai.files import asker
from web.engine import Engine
from web.keys import ENGINE, INTAKE
from web.wire import recommend as wire
from web.wire.decoding import decode
from web.wire.forms import Form

_RUNS = frozenset({"available", "loading", "loaded"})


async def recommend(request: web.Request) -> web.Response:
    """Nothing is loaded for it."""
    engine, who = request.app[ENGINE], asker(request)
    asked = decode(await request.app[INTAKE].body(request), Form.JSON, wire.RecommendBody)
    name, catalog = wire.task(asked.task), engine.catalog
    fitting = [spec for spec in wire.fitting(name, catalog) if may_call(who, spec.id)]
    known = await _known(engine, fitting)
    return sending.small(wire.answer(name, catalog, known))


async def _known(engine: Engine, specs: Sequence[ModelSpec]) -> list[wire.Known]:
    """Those that run here: their weights are here, or there already, and can be read, and find room beside
    what is pinned as far as that can be told; nobody paused them; none failed."""
    view, settings = engine.view(), engine.settings
    kinds = {device.kind for device in view.devices}
    seen = {model.id: model for model in view.models}
    models = [(spec, seen.get(spec.id, ModelView(spec.id, "available"))) for spec in specs]
    may = [(s, m) for s, m in models if m.state in _RUNS and not m.paused and kinds.intersection(s.devices)]
    sources = Sources.of(settings)

    def here() -> list[tuple[ModelSpec, bool, bool]]:
        """With whether each is loaded, and whether its size can be read at once."""
        loaded = [(s, m.state == "loaded") for s, m in may]
        return [(s, there, there or sources.ready(s)) for s, there in loaded if there or sources.here(s)]

    known = []
    for spec, loaded, readable in await to_thread.run_sync(here):
        if not readable:
            known.append(wire.Known(spec, loaded, None))
            continue
        footprint = await engine.sizes.footprint(spec.unit())
        if footprint is not None and await engine.sizes.refusal(spec.unit()) is None:
            known.append(wire.Known(spec, loaded, footprint.weights_bytes))
    return known
