"""The published client, the edge and the real engine on a simulated device: whole calls, end to end."""

from __future__ import annotations

import anyio
import numpy as np
import pytest
from anyio import to_thread
from sie_sdk import RequestError, ServerError, SIEAsyncClient, SIEClient

from tests import simulation
from tests.simulation import MIB
from tests.web.conftest import serving

pytestmark = pytest.mark.anyio

QUICK = {"load_seconds": 0.05}
MODELS = simulation.catalog(
    simulation.model("a/encoder", options=QUICK, profiles={"short": {}}),
    simulation.model("b/encoder", options=QUICK),
    simulation.model("a/reranker", ("score",), outputs=[], dims={}, options=QUICK),
    simulation.model("a/writer", ("generate",), outputs=[], dims={}, options=QUICK),
    simulation.model("a/broken", options={**QUICK, "load_error": "no such tensor"}),
    simulation.model("a/fragile", options={**QUICK, "poison": "poison"}),
)


@pytest.fixture
async def url(anyio_backend: str):
    async with simulation.engine(MODELS, memory=250 * MIB) as engine, serving(engine) as url:
        yield url


async def in_thread(url, work):
    def run():
        with SIEClient(url, timeout_s=10) as client:
            return work(client)

    return await to_thread.run_sync(run)


async def test_each_text_gets_its_own_vector_and_a_cold_model_is_waited_for(url: str):
    texts = [{"text": f"text {i}", "id": str(i)} for i in range(600)]

    together = await in_thread(url, lambda c: c.encode("a/encoder", texts))
    alone = await in_thread(url, lambda c: c.encode("a/encoder", texts[7]))

    assert [r["id"] for r in together] == [t["id"] for t in texts]
    np.testing.assert_array_equal(together[7]["dense"], alone["dense"])
    assert together[7]["dense"].tolist() != together[8]["dense"].tolist()


async def test_models_that_do_not_fit_together_all_answer(url: str):
    async with SIEAsyncClient(url, timeout_s=20) as client:
        answers = (
            await client.encode("a/encoder", {"text": "x"}),
            await client.encode("b/encoder", {"text": "x"}),
        )
        scores = await client.score("a/reranker", {"text": "q"}, [{"text": "a"}, {"text": "b"}])
        text = await client.generate("a/writer", "write a little", max_new_tokens=3)
        streamed = [c async for c in client.stream_generate("a/writer", "write a little", max_new_tokens=3)]

    assert [a["dense"].shape for a in answers] == [(8,), (8,)]
    assert [s["rank"] for s in scores["scores"]] == [0, 1]
    assert "".join(c["text_delta"] for c in streamed) == text["text"] != ""
    assert text["usage"]["completion_tokens"] == streamed[-1]["usage"]["completion_tokens"] == 3


async def test_what_the_engine_refuses_reaches_the_client_typed(url: str):
    with pytest.raises(RequestError, match="score"):
        await in_thread(url, lambda c: c.encode("a/reranker", {"text": "x"}))
    with pytest.raises(ServerError, match="no such tensor"):
        await in_thread(url, lambda c: c.encode("a/broken", {"text": "x"}))
    with pytest.raises(ServerError) as caught:
        await in_thread(url, lambda c: c.encode("a/fragile", [{"text": "good"}, {"text": "poison"}]))

    assert caught.value.code == "INFERENCE_ERROR"


async def test_status_and_metrics_follow(url: str):
    await in_thread(url, lambda c: c.encode("a/encoder:short", {"text": "x"}))

    models = await in_thread(url, lambda c: {m["name"]: m for m in c.list_models()})
    capacity = await in_thread(url, lambda c: c.get_capacity())
    with anyio.fail_after(5):
        worker = await in_thread(url, lambda c: next(iter(c.watch(mode="worker"))))

    assert models["a/encoder"]["loaded"] and not models["b/encoder"]["loaded"]
    assert capacity["workers"][0]["memory_used_bytes"] >= 100 * MIB
    assert worker["loaded_models"] == ["a/encoder"]
