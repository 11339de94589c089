"""The published client, unchanged, against the edge."""

from __future__ import annotations

import re
import time

import anyio
import numpy as np
import pytest
from anyio import to_thread
from sie_sdk import (
    InputTooLongError,
    ModelLoadFailedError,
    RequestError,
    ServerError,
    SIEAsyncClient,
    SIEClient,
)

from engine.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InputTooLong,
    LoadFailed,
    QueueFull,
    RunnerCrashed,
    StillLoading,
    Stopped,
)
from engine.requests import Classification, Delta, Extracted, OutputType, Relation, Response, Usage
from tests.web.fakes import TIMING, FakeEngine, respond, vector

pytestmark = pytest.mark.anyio


async def in_thread(url, work):
    def run():
        with SIEClient(url, timeout_s=10) as client:
            return work(client)

    return await to_thread.run_sync(run)


async def test_encode_gives_the_vector_of_each_text(url: str):
    results = await in_thread(
        url, lambda c: c.encode("fake/encoder", [{"text": "a", "id": "x"}, {"text": "b"}])
    )

    assert [r.get("id") for r in results] == ["x", None]
    assert results[0]["dense"].dtype == np.float32
    np.testing.assert_array_equal(results[1]["dense"], vector("b"))
    assert results[0]["timing"]["queue_ms"] == pytest.approx(0.1)
    assert results[0]["request"]["id"]


async def test_encode_gives_every_output_type(url: str):
    asked = ["dense", "sparse", "multivector"]

    result = await in_thread(url, lambda c: c.encode("fake/encoder", {"text": "a"}, output_types=asked))

    assert result["sparse"]["indices"].tolist() == [5, 9]
    assert result["multivector"].shape == (4, 96)


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "binary", "ubinary"])
async def test_encode_keeps_the_dtype_that_was_asked(url: str, engine: FakeEngine, dtype: str):
    result = await in_thread(url, lambda c: c.encode("fake/encoder", {"text": "a"}, output_dtype=dtype))

    assert result["dense"].dtype == (np.uint8 if "binary" in dtype else dtype)
    assert engine.requests[0].options.output_dtype == dtype


async def test_encode_takes_routing_and_profiles(url: str, engine: FakeEngine):
    await in_thread(
        url,
        lambda c: c.encode("encoder", {"text": "a"}, gpu="eval/l4", options={"profile": "short"}),
    )

    assert (engine.requests[0].model, engine.requests[0].profile) == ("fake/encoder", "short")


async def test_score_ranks_the_passages(url: str):
    passages = [{"text": "lunch"}, {"text": "the invoice", "id": "b"}, {"text": "the invoice amount"}]

    result = await in_thread(
        url, lambda c: c.score("fake/reranker", {"text": "the invoice amount", "id": "q"}, passages)
    )

    assert result["query_id"] == "q"
    assert [(s["item_id"], s["score"], s["rank"]) for s in result["scores"]] == [
        ("item-2", 3.0, 0),
        ("b", 2.0, 1),
        ("item-0", 0.0, 2),
    ]


async def test_extract_gives_entities_and_keeps_the_place_of_a_failed_item(url: str, engine: FakeEngine):
    engine.answer = lambda request: Response(
        request.model,
        (*respond(request).outputs[:1], InferenceFailed("broken")),
        Usage(input_tokens=2),
        TIMING,
    )

    good, bad = await in_thread(
        url, lambda c: c.extract("fake/extractor", [{"text": "Tim's"}, {"text": "b"}], labels=["start"])
    )

    assert good["entities"][0] == {
        "text": "Tim",
        "label": "start",
        "score": 0.5,
        "start": 0,
        "end": 3,
        "bbox": None,
    }
    assert bad["id"] == "item-1"
    assert bad["error"] == {"code": "INFERENCE_ERROR", "message": "broken"}
    assert engine.requests[0].options.labels == ("start",)


async def test_extract_gives_classes_relations_and_data_as_the_client_reads_them(
    url: str, engine: FakeEngine
):
    found = Extracted(
        classifications=(Classification("urgent", 0.75), Classification("calm", 0.25)),
        relations=(Relation("Zork Blim", "Ulm", "lives in", 0.5),),
        data={"invoice": [{"total": "12", "lines": None}]},
    )
    engine.answer = lambda request: Response(request.model, (found,), Usage(input_tokens=2), TIMING)

    schema = {"entities": {"town": "a town"}, "relations": ["lives in"]}
    result = await in_thread(
        url, lambda c: c.extract("fake/extractor", {"text": "x"}, labels=["town"], output_schema=schema)
    )

    assert result["classifications"] == [
        {"label": "urgent", "score": 0.75},
        {"label": "calm", "score": 0.25},
    ]
    assert result["relations"] == [{"head": "Zork Blim", "tail": "Ulm", "relation": "lives in", "score": 0.5}]
    assert result["data"] == {"invoice": [{"total": "12", "lines": None}]}
    assert engine.requests[0].options.output_schema == schema


async def test_extract_sends_documents_and_gets_data(url: str, engine: FakeEngine):
    engine.answer = lambda request: Response(
        request.model, (Extracted(data={"markdown": "# Hi"}),), Usage(pages=1), TIMING
    )

    result = await in_thread(url, lambda c: c.extract("fake/extractor", {"document": b"%PDF-1.7 x"}))

    assert result["data"] == {"markdown": "# Hi"}
    assert engine.requests[0].items[0].document.data == b"%PDF-1.7 x"


async def test_generate_gives_text_and_usage(url: str, engine: FakeEngine):
    result = await in_thread(
        url,
        lambda c: c.generate("fake/writer", "hello", max_new_tokens=5, stop=["x"], temperature=0.1, seed=7),
    )

    assert result["text"] == "HELLO"
    assert result["usage"]["prompt_tokens"] == 3
    options = engine.requests[0].options
    assert (options.max_new_tokens, options.stop, options.temperature, options.seed) == (5, ("x",), 0.1, 7)


async def test_generate_streams(url: str):
    chunks = await in_thread(url, lambda c: list(c.stream_generate("fake/writer", "hello", max_new_tokens=5)))

    assert [c["text_delta"] for c in chunks] == ["he", ""]
    assert chunks[-1]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["total_tokens"] == 2
    assert chunks[-1]["ttft_ms"] >= 0


async def test_an_error_in_the_middle_of_a_stream_is_raised(url: str, engine: FakeEngine):
    engine.deltas = [Delta("he", 1), InferenceFailed("broken")]

    with pytest.raises(ServerError, match="broken"):
        await in_thread(url, lambda c: list(c.stream_generate("fake/writer", "hello", max_new_tokens=5)))


async def test_the_catalogue_and_the_capacity_are_shown(url: str):
    models, one, capacity = await in_thread(
        url, lambda c: (c.list_models(), c.get_model("fake/encoder"), c.get_capacity())
    )

    assert models[0]["name"] == "fake/encoder"
    assert one["dims"] == {"dense": 384, "sparse": 30522, "multivector": 96}
    assert one["loaded"] is True
    assert capacity["worker_count"] == 1
    assert capacity["workers"][0]["loaded_models"] == ["fake/encoder"]


async def test_watch_yields_snapshots(url: str):
    def first(client, mode):
        return next(iter(client.watch(mode=mode)))

    worker = await in_thread(url, lambda c: first(c, "worker"))
    cluster = await in_thread(url, lambda c: first(c, "auto"))

    assert worker["loaded_models"] == ["fake/encoder"]
    assert worker["models"][0]["queue_depth"] == 2
    assert cluster["cluster"]["worker_count"] == 1


async def test_pools_are_leased(url: str):
    def work(client):
        client.create_pool("Eval", gpus={"l4": 1}, minimum_worker_count=1, pinned_models=["m"])
        return client.get_pool("eval"), client.delete_pool("eval"), client.get_pool("eval")

    pool, deleted, gone = await in_thread(url, work)

    assert pool["spec"]["gpus"] == {"l4": 1}
    assert pool["status"]["state"] == "active"
    assert (deleted, gone) == (True, None)


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (InputTooLong("too long").at(0), InputTooLongError),
        (LoadFailed("no", error_class="OSError", attempts=3, permanent=True), ModelLoadFailedError),
        (DeadlineExceeded(), RequestError),
        (InferenceFailed().at(0), ServerError),
    ],
    ids=lambda v: type(v).__name__,
)
async def test_terminal_errors_are_raised_at_once(url: str, engine: FakeEngine, failure, raised):
    engine.failure = failure

    with pytest.raises(raised):
        await in_thread(url, lambda c: c.encode("fake/encoder", {"text": "a"}))

    assert len(engine.requests) == 1


@pytest.mark.parametrize(
    "failure", [StillLoading(), QueueFull(), Stopped(), RunnerCrashed()], ids=lambda v: type(v).__name__
)
async def test_passing_errors_are_tried_again_after_a_fraction_of_a_second(
    url: str, engine: FakeEngine, failure
):
    def answer(request):
        if len(engine.requests) == 1:
            raise failure.after(0.05)
        return respond(request)

    engine.answer = answer
    began = time.monotonic()

    result = await in_thread(url, lambda c: c.encode("fake/encoder", {"text": "a"}))

    assert result["dense"].shape == (384,)
    assert len(engine.requests) == 2
    assert time.monotonic() - began < 1.0


async def test_an_unknown_model_is_answered_with_a_suggestion(url: str):
    with pytest.raises(RequestError, match=re.escape("fake/encoder")):
        await in_thread(url, lambda c: c.encode("fake/encodr", {"text": "a"}))


async def test_the_async_client_works_too(url: str):
    async with SIEAsyncClient(url, timeout_s=10) as client:
        encoded = await client.encode("fake/encoder", [{"text": "a"}])
        scored = await client.score("fake/reranker", {"text": "a"}, [{"text": "b"}, {"text": "a"}])
        extracted = await client.extract("fake/extractor", {"text": "Tim"})
        generated = await client.generate("fake/writer", "hi", max_new_tokens=2)
        streamed = [c async for c in client.stream_generate("fake/writer", "hi", max_new_tokens=2)]

    np.testing.assert_array_equal(encoded[0]["dense"], vector("a"))
    assert scored["scores"][0]["item_id"] == "item-1"
    assert extracted["entities"][0]["text"] == "Tim"
    assert generated["text"] == "HI"
    assert streamed[-1]["done"] is True


async def test_a_client_that_leaves_takes_its_request_with_it(url: str, engine: FakeEngine):
    engine.wait = 30
    async with SIEAsyncClient(url, timeout_s=10) as client:
        with anyio.move_on_after(0.3):
            await client.encode("fake/encoder", {"text": "a"})
    with anyio.fail_after(2):
        await engine.left.wait()


async def test_five_thousand_items_are_served_in_one_request(url: str, engine: FakeEngine):
    items = [{"text": str(i), "id": str(i)} for i in range(5000)]

    results = await in_thread(
        url, lambda c: c.encode("fake/encoder", items, output_types=[OutputType.DENSE.value])
    )

    assert [r["id"] for r in results] == [i["id"] for i in items]
    np.testing.assert_array_equal(results[4321]["dense"], vector("4321"))
