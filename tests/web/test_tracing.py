"""Spans of a request's life, kept in memory: their times are those that the engine records."""

from __future__ import annotations

from itertools import pairwise

import anyio
import pytest
from aiohttp import ClientSession, web
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from engine.config import Settings
from tests import simulation
from tests.web.conftest import serving
from web.app import make_app
from web.keys import TRACING
from web.tracing.tracing import Tracing

pytestmark = pytest.mark.anyio

MODELS = simulation.catalog(simulation.model("a/encoder", options={"load_seconds": 0.05}))
ENCODE = "/v1/encode/a/encoder"
BODY = {"items": [{"text": "one two"}]}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


async def traced(work, sample: float = 1.0, **settings: object):
    """What `work` leaves as spans on a server that traces."""
    exporter = InMemorySpanExporter()
    async with simulation.engine(MODELS, **settings) as engine:
        app = make_app(engine)
        app[TRACING] = Tracing(exporter, sample, engine.closely.journal)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=2)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            async with ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as http:
                await work(http)
        finally:
            app[TRACING].settle()
            app[TRACING].close()
            await runner.cleanup()
    return exporter.get_finished_spans()


async def post(http: ClientSession, **headers: str) -> int:
    async with http.post(ENCODE, json=BODY, headers=headers) as answer:
        return answer.status


def named(spans, name: str):
    return [span for span in spans if span.name == name]


async def test_a_request_is_a_tree_of_its_stages_one_after_the_other():
    async def work(http):
        assert await post(http, **{"X-Request-ID": "job-7"}) == 200

    spans = await traced(work)

    (root,) = named(spans, "request")
    inside = [span for span in spans if span.parent and span.parent.span_id == root.context.span_id]
    inside.sort(key=lambda span: span.start_time)
    assert [span.name for span in inside if span.name != "queue"] == [
        "parse",
        "prepare",
        "load",
        "run",
        "encode",
    ]
    assert all(a.end_time <= b.start_time + 1000 for a, b in pairwise(inside))
    assert all(root.start_time - 20e6 <= s.start_time and s.end_time <= root.end_time + 20e6 for s in inside)
    assert root.attributes["serai.request_id"] == "job-7"
    assert root.attributes["http.route"] == "/v1/encode/{model}"
    (load,) = named(spans, "load")
    assert load.end_time - load.start_time == pytest.approx(root.attributes["serai.load_ms"] * 1e6, rel=0.01)
    assert load.end_time - load.start_time >= 0.04e9
    (batch,) = named(spans, "batch")
    assert batch.parent.span_id == named(spans, "run")[0].context.span_id


async def test_a_callers_trace_goes_on_and_the_answer_names_it():
    answers = {}

    async def work(http):
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        async with http.post(ENCODE, json=BODY, headers=headers) as answer:
            answers["status"] = answer.status

    spans = await traced(work, sample=0.0)

    (root,) = named(spans, "request")
    assert (f"{root.context.trace_id:032x}", f"{root.parent.span_id:016x}") == (TRACE, PARENT)


async def test_a_caller_who_does_not_trace_is_not_traced_and_others_by_share():
    async def work(http):
        assert await post(http, traceparent=f"00-{TRACE}-{PARENT}-00") == 200
        assert await post(http, traceparent="no such thing") == 200

    assert await traced(work, sample=0.0) == ()
    assert [f"{s.context.trace_id:032x}" == TRACE for s in named(await traced(work, 1.0), "request")] == [
        False
    ]


async def test_those_who_shared_a_batch_are_linked():
    async def work(http):
        await post(http)
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(post, http)

    spans = await traced(work)

    roots = {span.context.span_id for span in named(spans, "request")}
    linked = {batch.context.trace_id: batch for batch in named(spans, "batch") if batch.links}
    assert linked
    for batch in linked.values():
        assert {link.context.span_id for link in batch.links} <= roots
        assert batch.context.trace_id not in {link.context.trace_id for link in batch.links}
        assert len(batch.links) == batch.attributes["serai.jobs"] - 1


async def test_nothing_is_traced_and_nothing_imported_without_a_place_to_send_to():
    async with simulation.engine(MODELS) as engine:
        assert Settings().otel_endpoint is None
        assert make_app(engine).get(TRACING) is None


async def test_an_answer_names_its_trace_where_a_place_is_set():
    endpoint = "http://127.0.0.1:9/v1/traces"
    async with simulation.engine(MODELS, otel_endpoint=endpoint, otel_sample=0.0) as engine:
        async with serving(engine) as url, ClientSession(url) as http:
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
            async with http.get("/healthz", headers=headers) as answer:
                said = answer.headers["traceresponse"]

    assert said.startswith(f"00-{TRACE}-") and said.endswith("-00")
