"""Spans of requests: made from what is recorded at their end, a moment later, and sent by a thread.

The one span that is open while a request is served is its root, whose id the answer names. Batches become
spans when their requests are over, since only then all who shared one are known.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from engine import __version__
from engine.events import BatchDone, RequestDone
from engine.journal import Journal
from engine.logs import request_fields
from web.tracing.life import Moments, pieces

SETTLE = 0.5
"""Seconds until the requests that shared a batch have all ended, or nearly so."""

MAX_PENDING = 2000
"""Requests that wait to become spans. Beyond it they are not traced."""

_CONTEXT = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class Over:
    """A request that is over and is yet to be told."""

    root: Span
    moments: Moments
    done: RequestDone | None


class Tracing:
    """Nothing leaves the machine but by `exporter`, which decides where to."""

    def __init__(self, exporter: SpanExporter, sample: float, journal: Journal) -> None:
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(sample)),
            # Not what the environment says of the machine: only what is written here is sent.
            resource=Resource({"service.name": "serai", "service.version": __version__}),
            span_limits=SpanLimits(max_links=128),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("serai", __version__)
        self._journal = journal
        self._pending: list[Over] = []

    def began(self, headers: Mapping[str, str]) -> Span:
        """The root: part of the caller's trace, where it brings one; `ParentBased` keeps what it decided."""
        said = {"traceparent": headers.get("traceparent", ""), "tracestate": headers.get("tracestate", "")}
        parent = _CONTEXT.extract({name: value for name, value in said.items() if value})
        return self._tracer.start_span("request", parent, SpanKind.SERVER)

    def ended(self, root: Span, moments: Moments, done: RequestDone | None) -> None:
        """Takes it over. Only remembers it: spans are made when the loop has told the rest."""
        if not root.is_recording() or len(self._pending) >= MAX_PENDING:
            return
        if not self._pending:
            asyncio.get_running_loop().call_later(SETTLE, self.settle)
        self._pending.append(Over(root, moments, done))

    def settle(self) -> None:
        """Make the spans of all that are over."""
        over, self._pending = self._pending, []
        if not over:
            return
        clock = _Clock(time.time() - asyncio.get_running_loop().time())
        mates: dict[int, list[Span]] = {}
        for one in over:
            for batch, _ in one.done.batches if one.done is not None else ():
                mates.setdefault(batch, []).append(one.root)
        ran = {batch.batch: batch for batch in self._journal.batches if batch.batch in mates}
        for one in over:
            self._tell(one, clock, mates, ran)

    def close(self) -> None:
        """Send what there is. Waits for the network, so a thread should call it."""
        self._provider.shutdown()

    def _tell(
        self,
        one: Over,
        clock: _Clock,
        mates: Mapping[int, list[Span]],
        ran: Mapping[int, BatchDone],
    ) -> None:
        root, moments, done = one.root, one.moments, one.done
        root.set_attributes(
            {
                "http.request.method": moments.method,
                "http.route": moments.route,
                "http.response.status_code": moments.status,
            }
        )
        if done is not None:
            root.set_attributes(
                {f"serai.{name}": _plain(value) for name, value in request_fields(done).items()}
            )
        if moments.status >= 500:
            root.set_status(Status(StatusCode.ERROR))
        inside = set_span_in_context(root)
        for piece in pieces(moments, done):
            span = self._tracer.start_span(piece.name, inside, start_time=clock.at(piece.began))
            if piece.name == "run" and done is not None:
                found = [ran[batch] for batch, _ in done.batches if batch in ran]
                self._batches(span, found, root, clock, mates)
            span.end(clock.at(piece.ended))
        root.end(clock.at(moments.ended))

    def _batches(
        self, run: Span, ran: Iterable[BatchDone], root: Span, clock: _Clock, mates: Mapping[int, list[Span]]
    ) -> None:
        """Each batch that it had jobs in, linked to the other requests that had."""
        for batch in ran:
            links = [Link(mate.get_span_context()) for mate in mates[batch.batch] if mate is not root]
            span = self._tracer.start_span(
                "batch",
                set_span_in_context(run),
                links=links,
                start_time=clock.at(batch.started),
                attributes={
                    "serai.batch": batch.batch,
                    "serai.unit": batch.unit,
                    "serai.slot": batch.slot,
                    "serai.jobs": batch.jobs,
                    "serai.cost": batch.cost,
                    "serai.predicted_ms": batch.predicted * 1000,
                },
            )
            span.end(clock.at(batch.started + batch.seconds))


@dataclass(frozen=True, slots=True)
class _Clock:
    offset: float
    """Added to the engine's clock it is the time since the epoch."""

    def at(self, moment: float) -> int:
        """Nanoseconds since the epoch."""
        return int((moment + self.offset) * 1e9)


def _plain(value: object) -> str | int | float | list[int]:
    return value if isinstance(value, str | int | float | list) else str(value)


def traceresponse(root: Span) -> str:
    """Names the trace that the answer is part of, as the W3C's draft of that header has it."""
    context = root.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
