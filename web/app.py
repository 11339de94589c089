"""The HTTP edge, put together: routes, middlewares, and what handlers find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from weakref import WeakSet

import aiohttp_jinja2
import jinja2
from aiohttp import web

import engine as product
from engine.resources import bundled
from web.api import encode, extract, generate, health, models, pools, score, status
from web.engine import Engine
from web.intake import Intake
from web.keys import ENGINE, INTAKE, POOLS, SNAPSHOTS, SOCKETS
from web.middleware import MIDDLEWARES, common_headers
from web.pages import home
from web.snapshots import Snapshots
from web.wire.items import Limits

_STATIC = Path(__file__).parent / "static"

ROUTES = (
    web.get("/", home.home),
    web.get("/healthz", health.alive),
    web.get("/livez", health.alive),
    web.get("/readyz", health.ready),
    web.get("/health", health.health),
    web.get("/metrics", health.metrics),
    web.get("/ws/status", status.worker),
    web.get("/ws/cluster-status", status.cluster),
    web.get("/v1/models", models.list_models),
    web.get("/v1/models/{model:.+}", models.show),
    web.post("/v1/models/{model:.+}/{action}", models.act),
    web.post("/v1/encode/{model:.+}", encode.encode),
    web.post("/v1/score/{model:.+}", score.score),
    web.post("/v1/extract/{model:.+}", extract.extract),
    web.post("/v1/generate/{model:.+}", generate.generate),
    web.post("/v1/pools", pools.create),
    web.get("/v1/pools", pools.list_pools),
    web.get("/v1/pools/{pool}", pools.show),
    web.post("/v1/pools/{pool}/renew", pools.renew),
    web.delete("/v1/pools/{pool}", pools.delete),
    web.static("/static", _STATIC),
)


def under(base: str) -> Iterator[web.AbstractRouteDef]:
    """All routes again, below a path."""
    for route in ROUTES:
        if isinstance(route, web.RouteDef):
            yield web.route(route.method, base + route.path, route.handler, **route.kwargs)
        else:
            yield web.static(base + route.prefix, route.path)


def make_app(engine: Engine) -> web.Application:
    """The application. Its server must cancel handlers whose client has left (`handler_cancellation`)."""
    settings = engine.settings
    app = web.Application(middlewares=MIDDLEWARES)
    app[ENGINE] = engine
    app[INTAKE] = Intake(settings.max_body_bytes, Limits(settings.max_items, settings.max_item_text_bytes))
    app[SNAPSHOTS] = Snapshots(engine, product.__version__)
    app[POOLS] = pools.Pools()
    app[SOCKETS] = WeakSet()
    app.add_routes(ROUTES)
    if settings.base_path:  # a proxy may take the prefix away, or pass it on; probes come without it
        app.add_routes(under(settings.base_path))
    app.on_response_prepare.append(common_headers)
    app.on_shutdown.append(status.close_all)
    aiohttp_jinja2.setup(app, loader=jinja2.FileSystemLoader(bundled("templates")), autoescape=True)
    return app
