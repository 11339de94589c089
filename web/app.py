"""The HTTP edge, put together: routes, middlewares, and what handlers find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from weakref import WeakSet

import aiohttp_jinja2
import jinja2
from aiohttp import web

import engine as product
from engine.access.principals import allowed
from engine.resources import bundled
from web.access import account, keys, login, users
from web.api import (
    admin,
    encode,
    estimate,
    extract,
    generate,
    health,
    jobs,
    lines,
    models,
    openai,
    openapi,
    pools,
    recommend,
    recordings,
    rerank,
    score,
    status,
    tei,
)
from web.console import routes as console
from web.cors import cors_headers
from web.engine import Engine
from web.intake import Intake
from web.keys import ENGINE, INTAKE, POOLS, REFERENCE, SNAPSHOTS, SOCKETS, WEIGHTS
from web.middleware import MIDDLEWARES, common_headers
from web.openapi import routes as openapi_routes
from web.pages import home, reference
from web.snapshots import Snapshots
from web.tracing import wired as tracing
from web.turnstile import WAY_IN, WAY_OUT, Turnstile
from web.weights import Weights
from web.wire.items import Limits

_STATIC = Path(__file__).parent / "static"

ROUTES = (
    web.get("/", home.home),
    web.get("/healthz", health.alive),
    web.get("/livez", health.alive),
    web.get("/readyz", health.ready),
    web.get("/health", health.health),
    web.get("/metrics", health.metrics),
    web.get("/openapi.json", openapi.document),
    web.get("/docs/api", reference.page),
    web.get("/ws/status", status.worker),
    web.get("/ws/cluster-status", status.cluster),
    web.get("/v1/models", models.list_models),
    web.get("/v1/models/{model:.+}", models.show),
    web.post("/v1/models/{model:.+}/{action}", models.act),
    web.post("/v1/encode/{model:.+}", encode.encode),
    web.post("/v1/score/{model:.+}", score.score),
    web.post("/v1/extract/{model:.+}", extract.extract),
    web.post("/v1/generate/{model:.+}", generate.generate),
    web.post("/v1/rerank", rerank.v1),
    web.post("/v2/rerank", rerank.v2),
    web.post("/v1/estimate", estimate.estimate),
    web.post("/v1/recommend", recommend.recommend),
    web.post("/v1/jobs", jobs.create),
    web.get("/v1/jobs", jobs.list_jobs),
    web.get("/v1/jobs/results/{ref}", jobs.results),
    web.get("/v1/jobs/{job}", jobs.show),
    web.post("/v1/jobs/{job}/cancel", jobs.cancel),
    web.post("/v1/jobs/{job}/execute", jobs.execute),
    web.post("/v1/jobs/{job}/repair", jobs.repair),
    *tei.ROUTES,
    *openai.ROUTES,
    web.post("/v1/pools", pools.create),
    web.get("/v1/pools", pools.list_pools),
    web.get("/v1/pools/{pool}", pools.show),
    web.post("/v1/pools/{pool}/renew", pools.renew),
    web.delete("/v1/pools/{pool}", pools.delete),
    web.get("/login", login.page),
    web.post("/login", login.enter),
    web.post("/first-run", login.first),
    web.post("/logout", login.leave),
    web.get("/account", account.page),
    web.post("/account/password", account.password),
    web.get("/v1/admin/models/{model:.+}", admin.show),
    web.post("/v1/admin/models/{model:.+}/{action}", admin.act),
    web.get("/v1/admin/catalog", admin.catalog),
    web.post("/v1/admin/catalog/reload", admin.reload_catalog),
    web.post("/v1/admin/catalog/entries", admin.add_entry),
    web.delete("/v1/admin/catalog/entries/{model:.+}", admin.remove_entry),
    web.get("/v1/admin/audit", admin.audit),
    web.get("/v1/admin/devices", admin.devices),
    web.get("/v1/admin/recordings", recordings.list_recordings),
    web.post("/v1/admin/recordings/start", recordings.start),
    web.post("/v1/admin/recordings/stop", recordings.stop),
    web.post("/v1/admin/recordings/trim", recordings.trim),
    web.get("/v1/admin/recordings/{recording}", recordings.show),
    web.delete("/v1/admin/recordings/{recording}", recordings.delete),
    web.get("/v1/admin/recordings/{recording}/export", recordings.export),
    web.post("/v1/admin/recordings/{recording}/import", recordings.take_in),
    web.post("/v1/admin/pause", admin.pause),
    web.post("/v1/admin/resume", admin.resume),
    web.get("/v1/admin/keys", keys.list_keys),
    web.post("/v1/admin/keys", keys.create),
    web.delete("/v1/admin/keys/{key}", keys.revoke),
    web.get("/v1/admin/users", users.list_users),
    web.post("/v1/admin/users", users.create),
    web.delete("/v1/admin/users/{user}", users.remove),
    web.post("/v1/admin/users/{user}/password", users.password),
    web.post("/v1/admin/users/{user}/role", users.role),
    web.static("/static", _STATIC),
)


def under(base: str) -> Iterator[web.AbstractRouteDef]:
    """All routes again, below a path."""
    for route in (*ROUTES, *console.ROUTES):
        if isinstance(route, web.RouteDef):
            yield web.route(route.method, base + route.path, route.handler, **route.kwargs)
        elif isinstance(route, web.StaticDef):
            yield web.static(base + route.prefix, route.path)


def make_app(engine: Engine) -> web.Application:
    """The application. Its server must cancel handlers whose client has left (`handler_cancellation`)."""
    settings = engine.settings
    app = web.Application(middlewares=MIDDLEWARES)
    app[ENGINE] = engine
    app[INTAKE] = Intake(settings.max_body_bytes, Limits(settings.max_items, settings.max_item_text_bytes))
    app[SNAPSHOTS] = Snapshots(engine, product.__version__)
    app[POOLS] = pools.Pools()
    app[WEIGHTS] = Weights(engine)
    app[REFERENCE] = openapi_routes.of(ROUTES)
    app[SOCKETS] = WeakSet()
    app[WAY_IN] = Turnstile()
    app[WAY_OUT] = Turnstile()
    app[login.DOOR] = login.Door()
    app.add_routes(ROUTES + console.ROUTES)
    if settings.base_path:  # a proxy may take the prefix away, or pass it on; probes come without it
        app.add_routes(under(settings.base_path))
    app.on_response_prepare.append(common_headers)
    app.on_response_prepare.append(cors_headers)
    app.on_shutdown.append(status.close_all)
    pages = aiohttp_jinja2.setup(app, loader=jinja2.FileSystemLoader(bundled("templates")), autoescape=True)
    pages.globals["allowed"] = allowed  # allowed(principal, "operate"), for what a page offers
    console.begin(app)
    app.cleanup_ctx.append(lines.batches)
    tracing.add(app)
    return app
