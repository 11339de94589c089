"""What handlers find in the application and in a request."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from aiohttp import web

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from web.api.pools import Pools
    from web.engine import Engine
    from web.intake import Intake
    from web.openapi.routes import Route
    from web.snapshots import Snapshots
    from web.tracing.tracing import Tracing
    from web.weights import Weights

ENGINE: web.AppKey[Engine] = web.AppKey("engine")
INTAKE: web.AppKey[Intake] = web.AppKey("intake")
SNAPSHOTS: web.AppKey[Snapshots] = web.AppKey("snapshots")
TRACING: web.AppKey[Tracing] = web.AppKey("tracing")
"""Only where requests are traced."""
POOLS: web.AppKey[Pools] = web.AppKey("pools")
REFERENCE: web.AppKey[tuple[Route, ...]] = web.AppKey("reference")
"""The routes as the reference of the HTTP interface names them."""
WEIGHTS: web.AppKey[Weights] = web.AppKey("weights")
SOCKETS: web.AppKey[WeakSet[web.WebSocketResponse]] = web.AppKey("sockets")

REQUEST_ID: web.RequestKey[str] = web.RequestKey("request_id", str)
SPAN: web.RequestKey[Span] = web.RequestKey("span")
"""The root of its trace, where requests are traced."""
ARRIVED: web.RequestKey[float] = web.RequestKey("arrived", float)
"""When its headers were here, on the engine's clock."""
