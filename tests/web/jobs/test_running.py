"""Jobs of every operation: what is run, what comes back, and what becomes of an item that fails."""

from __future__ import annotations

import warnings
from typing import Any

import anyio
import numpy as np
import pytest
from msgspec.structs import replace
from sie_sdk import SIEClient
from sie_sdk.client.errors import RequestError

from engine.access.principals import LOCAL
from engine.batches import run as batches
from engine.errors import InferenceFailed, QueueFull
from engine.requests import Encoded, Request, Response, ServiceClass
from tests.web.fakes import respond, vector
from tests.web.jobs.driving import MODEL, native, run
from web.wire import jobs as wire

pytestmark = pytest.mark.anyio


async def test_the_published_client_submits_waits_and_reads_vectors(url, engine):
    items = ["one", {"id": "b", "text": "two"}, {"id": "c", "text": "three"}]

    job, results = await native(url, lambda client: run(client, source=items, output_types=["dense"]))
    listed = await native(url, lambda client: client.jobs.list())

    assert (job["state"], job["total_items"], job["completed_items"]) == ("succeeded", 3, 3)
    assert job["operation"] == "encode" and job["created_at"] <= job["finished_at"]
    assert [item["id"] for item in results["items"]] == [f"{job['id']}.0", "b", "c"]
    for item, text in zip(results["items"], ("one", "two", "three"), strict=True):
        assert item["success"] and item["dims"] == 384 and item["units"]["input_tokens"]
        assert item["dense"].dtype == np.float32 and np.array_equal(item["dense"], vector(text))
    assert [each["id"] for each in listed] == [job["id"]]
    assert {request.service_class for request in engine.requests} == {ServiceClass.BACKGROUND}


@pytest.mark.parametrize(
    ("operation", "model", "options"),
    [
        ("score", "fake/reranker", {"query": "q"}),
        ("extract", "fake/extractor", {"labels": ["person"]}),
        ("generate", "fake/writer", {"max_new_tokens": 7, "temperature": 0}),
    ],
)
async def test_every_operation_runs_with_its_own_options(url, engine, operation, model, options):
    asked = {"source": ["Ada"], "operation": operation, "model": model, "options": options}

    job, results = await native(url, lambda client: run(client, **asked))

    assert job["state"] == "succeeded" and results["items"][0]["success"]
    [request] = engine.requests
    told = {
        "score": lambda o: o.query.text,
        "extract": lambda o: o.labels,
        "generate": lambda o: o.max_new_tokens,
    }
    assert (
        told[operation](request.options) == {"score": "q", "extract": ("person",), "generate": 7}[operation]
    )


async def test_results_come_in_pieces_and_in_the_order_of_the_items(url, monkeypatch):
    monkeypatch.setattr(wire, "CHUNK", 4)
    monkeypatch.setattr(batches, "PART", 4)
    items = [{"id": f"i{n}", "text": f"{n}"} for n in range(10)]

    job, results = await native(url, lambda client: run(client, source=items))

    assert [chunk["items"] for chunk in job["output"]["chunks"]] == [4, 4, 2]
    assert [item["id"] for item in results["items"]] == [f"i{n}" for n in range(10)]


async def test_an_item_that_fails_fails_alone_and_says_why(url, engine):
    def answer(request: Request) -> Response:
        if request.items[0].text == "bad":
            raise InferenceFailed("The model choked.")
        return respond(request)

    engine.answer = answer

    job, results = await native(url, lambda client: run(client, source=["good", {"id": "x", "text": "bad"}]))

    assert (job["state"], job["outcome"], job["error_code"]) == ("failed", "partial", "ITEMS_FAILED")
    assert job["output"]["chunks"][0]["state"] == "failed"
    good, bad = results["items"]
    assert good["success"] and (bad["id"], bad["success"]) == ("x", False)
    assert bad["error"] == {"code": "INFERENCE_ERROR", "message": "The model choked."}


async def test_an_item_that_extraction_could_not_read_fails_too(url, engine):
    engine.answer = lambda request: replace(respond(request), outputs=(InferenceFailed("No such page."),))

    job, results = await native(
        url, lambda client: run(client, source=["a"], operation="extract", model="fake/extractor")
    )

    assert (job["state"], job["outcome"]) == ("failed", "failed")
    assert results["items"][0]["error"]["message"] == "No such page."


async def test_vectors_of_bits_stay_bytes(url, engine):
    bits = Encoded(dense=np.array([-128, 127, 0], np.int8))
    engine.answer = lambda request: replace(respond(request), outputs=(bits,))

    _, results = await native(
        url, lambda client: run(client, source=["a"], options={"output_dtype": "binary"})
    )

    [item] = results["items"]
    assert item["dense"].dtype == np.int8 and item["dense"].tolist() == [-128, 127, 0]


async def test_a_cancelled_job_keeps_what_was_answered_and_runs_no_more(url, engine):
    reached = anyio.Event()

    def answer(request: Request) -> Response:
        if request.items[0].text == "slow":
            reached.set()
            raise QueueFull().after(3600)
        return respond(request)

    engine.answer = answer
    job = await native(url, lambda client: client.jobs.submit(source=["quick", "slow"], model=MODEL))
    with anyio.fail_after(10):
        await reached.wait()

    def end(client: SIEClient) -> tuple[Any, Any]:
        with pytest.raises(RequestError, match="not terminal"):
            client.jobs.results(job["id"])
        client.jobs.cancel(job["id"])
        ended = client.jobs.wait(job["id"], timeout_s=20, poll_s=0.02)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            results = client.jobs.results(job["id"])
        assert any("incomplete" in str(each.message) for each in told)
        return ended, results

    ended, results = await native(url, end)

    assert (ended["state"], ended["completed_items"]) == ("cancelled", 1)
    assert np.array_equal(results["items"][0]["dense"], vector("quick"))


async def test_each_piece_says_what_became_of_it_also_without_its_results(url, http, engine, monkeypatch):
    monkeypatch.setattr(wire, "CHUNK", 2)
    monkeypatch.setattr(batches, "PART", 2)
    reached = anyio.Event()

    def answer(request: Request) -> Response:
        if request.items[0].text == "bad":
            raise InferenceFailed("The model choked.")
        if request.items[0].text == "slow":
            reached.set()
            raise QueueFull().after(3600)
        return respond(request)

    engine.answer = answer
    items = ["good", "good", "good", "bad", "good", "slow", "slow"]
    job = await native(url, lambda client: client.jobs.submit(source=items, model=MODEL))
    with anyio.fail_after(10):
        await reached.wait()

    def end(client: SIEClient) -> Any:
        client.jobs.cancel(job["id"])
        return client.jobs.wait(job["id"], timeout_s=20, poll_s=0.02)

    told = (await native(url, end))["output"]["chunks"]
    async with http.get("/v1/files", params={"purpose": "job_output"}) as response:
        files = (await response.json())["data"]
    for file in files:
        (await http.delete(f"/v1/files/{file['id']}")).release()
    async with http.get(f"/v1/jobs/{job['id']}") as response:
        after = (await response.json())["output"]["chunks"]

    assert [chunk["state"] for chunk in told] == ["succeeded", "failed", "cancelled", "cancelled"]
    assert len(files) == 2 and all(chunk["ref"] for chunk in told)
    assert after == [{**chunk, "ref": None} for chunk in told]


async def test_a_job_tells_how_many_items_it_has_before_they_were_looked_at(url, http, engine, monkeypatch):
    monkeypatch.setattr(engine.batches, "_starting", None)  # as while the server stops: nothing is begun
    asked = {
        "json": {"operation": "encode", "model": MODEL, "items": [{"text": "a"}, {"text": "b"}]},
        "headers": {"Idempotency-Key": "k"},
    }
    async with http.post("/v1/jobs", **asked) as response:
        first = await response.json()
    async with http.post("/v1/jobs", **asked) as response:
        again = await response.json()
    async with http.post(f"/v1/jobs/{first['id']}/cancel") as response:
        cancelled = await response.json()

    assert (first["total_items"], again["total_items"], cancelled["total_items"]) == (2, 2, 2)


async def test_a_job_is_made_once_by_its_key(url, http, engine):
    async def make(text: str, key: str) -> tuple[int, str | None]:
        body = {"operation": "encode", "model": MODEL, "items": [{"text": text}]}
        async with http.post("/v1/jobs", json=body, headers={"Idempotency-Key": key}) as response:
            told = await response.json()
            return response.status, told.get("id")

    made_by: list[tuple[int, str | None]] = []

    async def keep() -> None:
        made_by.append(await make("a", "k1"))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(keep)

    assert len({job for _, job in made_by}) == 1 and sorted(status for status, _ in made_by) == [200] * 3 + [
        201
    ]
    assert await make("a", "k1") == (200, made_by[0][1])
    assert (await make("b", "k1"))[0] == 409
    assert (await make("a", "k2"))[1] != made_by[0][1]
    assert (await make("a", "k" * 257))[0] == 400
    assert len(engine.batches.shelf.jobs(LOCAL)) == 2


async def test_a_key_finds_its_job_after_the_file_of_items_was_deleted(http, url):
    async with http.post("/v1/files", data=b'{"text": "a"}\n{"text": "b"}\n') as response:
        file = (await response.json())["id"]
    asked = {
        "json": {"operation": "encode", "model": MODEL, "src": f"upload://{file}", "execution": "run"},
        "headers": {"Idempotency-Key": "k"},
    }
    async with http.post("/v1/jobs", **asked) as response:
        first = await response.json()
    async with http.delete(f"/v1/files/{file}") as response:
        assert response.status == 200

    async with http.post("/v1/jobs", **asked) as response:
        again = await response.json()

    assert (response.status, again["id"], again["total_items"]) == (200, first["id"], 2)


async def test_a_body_in_many_lines_is_one_line_an_item(http, url):
    body = b'{"operation":"encode","model":"fake/encoder","items":[{\n"text":\n"a\\nb"\n}]}'
    async with http.post("/v1/jobs", data=body, headers={"Content-Type": "application/json"}) as response:
        job = await response.json()

    ended = await native(url, lambda client: client.jobs.wait(job["id"], timeout_s=20, poll_s=0.02))

    assert (ended["state"], ended["total_items"]) == ("succeeded", 1)


async def test_the_items_may_stand_in_a_file_that_was_uploaded(url, engine):
    content = b'{"id": "a", "text": "one"}\n\n{"text": "two"}\n'
    named = b'{"nr": "x", "body": "three", "other": [1]}\n'

    def drive(client: SIEClient) -> list[Any]:
        found = []
        for lines, more in ((content, {}), (named, {"field_map": {"id_field": "nr", "input_field": "body"}})):
            file = client.files.upload(lines, filename="items.jsonl")
            asked = {"source": f"upload://{file['id']}", "execution": "run", "model": MODEL}
            asked = {**asked, "idempotency_key": file["id"], **more}
            job = client.jobs.submit(**asked)
            client.jobs.wait(job["id"], timeout_s=20, poll_s=0.02)
            found.append((job["total_items"], client.jobs.results(job["id"])["items"]))
            assert client.jobs.submit(**asked)["id"] == job["id"]
        return found

    (two, plain), (one, mapped) = await native(url, drive)

    assert (two, one) == (2, 1) and [item["id"] for item in (plain[0], mapped[0])] == ["a", "x"]
    for item, text in zip([*plain, *mapped], ("one", "two", "three"), strict=True):
        assert np.array_equal(item["dense"], vector(text))
