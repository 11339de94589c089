"""What each has used, counted as it ends."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from engine.access.principals import Scope, key
from engine.access.usage import RECENT, Usage
from engine.errors import EngineError
from engine.events import BatchDone, RequestDone
from tests.simulation import catalog, engine, model, request

BOT = key("abcd", "CI bot", [Scope.CALL], 1.0)


def batch(number, jobs, seconds):
    return BatchDone(number, "a", "cpu", "cpu/0", jobs, 10, 0.0, seconds, seconds)


def done(principal="key:abcd", outcome="ok", **fields):
    refused = RequestDone.refused(request("a", "x", principal=principal), "a", outcome, 0.0, 1.0)
    return replace(refused, **fields)


def test_a_request_takes_the_share_of_a_batch_that_its_jobs_had():
    usage = Usage()
    usage.tell(batch(1, jobs=4, seconds=2.0))
    usage.tell(batch(2, jobs=1, seconds=0.25))
    usage.tell(done(cost=30, input_tokens=20, output_tokens=5, batches=((1, 3), (2, 1))))
    usage.tell(done(outcome="QUEUE_FULL"))

    used = usage.by["key:abcd"]
    assert used.device_seconds == 1.75
    assert (used.cost, used.input_tokens, used.output_tokens) == (30, 20, 5)
    assert used.requests == {"ok": 1, "QUEUE_FULL": 1}


def test_callers_without_a_row_are_not_counted_and_cannot_make_it_grow():
    usage = Usage()
    for number in range(1000):
        usage.tell(done(principal=f"hash{number}"))

    assert usage.by == {}


def test_any_number_of_batches_takes_bounded_memory():
    usage = Usage()
    for number in range(3 * RECENT):
        usage.tell(batch(number, 1, 1.0))

    assert len(usage._seconds) == RECENT


def test_metrics_name_the_key_and_what_it_used():
    usage = Usage()
    usage.tell(batch(1, 2, 1.0))
    usage.tell(done(cost=30, input_tokens=20, batches=((1, 1),)))
    text = usage.exposition({BOT.id: BOT}, {BOT.id: 2}).decode()

    found = {
        (sample.name, *(v for k, v in sample.labels.items() if k not in ("principal", "name"))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels["name"] == "CI bot"
    }
    assert found == {
        ("serai_principal_requests_total", "ok"): 1,
        ("serai_principal_cost_total",): 30,
        ("serai_principal_tokens_total", "in"): 20,
        ("serai_principal_tokens_total", "out"): 0,
        ("serai_principal_device_seconds_total",): 0.5,
        ("serai_principal_in_flight",): 2,
    }


@pytest.mark.anyio
async def test_a_whole_engine_counts_who_asked_and_shares_a_batch_by_its_jobs():
    async with engine(catalog(model("a", options={"seconds_per_batch": 1.0}))) as opened:
        await opened.submit(request("a", "x", "y", principal="key:abcd"))
        await opened.submit(request("a", "x", principal="key:other"))
        with pytest.raises(EngineError):
            await opened.submit(request("nobody", "x", principal="key:abcd"))
        text = opened.metrics().decode()

    used = opened.access.usage.by
    assert used["key:abcd"].requests == {"ok": 1, "MODEL_NOT_FOUND": 1}
    assert used["key:abcd"].cost > used["key:other"].cost > 0
    assert used["key:abcd"].device_seconds >= 1.0
    assert 'serai_principal_requests_total{name="",outcome="ok",principal="key:other"} 1.0' in text
