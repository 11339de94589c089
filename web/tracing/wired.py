"""Traces are on where a place to send them to is set; then the application has a `Tracing`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web
from anyio import to_thread

from engine.config import Settings
from engine.given import SettingsError
from web.keys import ENGINE, SPAN, TRACING

if TYPE_CHECKING:
    from web.tracing.tracing import Tracing


def add(app: web.Application) -> None:
    """Nothing is imported, and nothing sent, without a place."""
    settings = app[ENGINE].settings
    if settings.otel_endpoint is None:
        return
    app[TRACING] = _over_http(settings, app)
    app.on_cleanup.append(_close)
    app.on_response_prepare.append(_named)


def _over_http(settings: Settings, app: web.Application) -> Tracing:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        from web.tracing.tracing import Tracing
    except ImportError as error:
        said = f"otel_endpoint: {error.name} is missing: install 'serai[otel]'"
        raise SettingsError([f"{settings.origin('otel_endpoint')}: {said}"]) from None
    exporter = OTLPSpanExporter(endpoint=settings.otel_endpoint)
    return Tracing(exporter, settings.otel_sample, app[ENGINE].closely.journal)


async def _named(request: web.Request, response: web.StreamResponse) -> None:
    from web.tracing.tracing import traceresponse

    if (span := request.get(SPAN)) is not None:
        response.headers["traceresponse"] = traceresponse(span)


async def _close(app: web.Application) -> None:
    app[TRACING].settle()
    await to_thread.run_sync(app[TRACING].close)
