"""Whose a job is, who may read its results, and what is refused."""

from __future__ import annotations

import io
import json
from typing import Any

import anyio
import pytest
from aiohttp import ClientSession
from sie_sdk import SIEClient
from sie_sdk.client.errors import RequestError

from engine.access import credentials
from engine.access import rows as access_rows
from engine.access.access import Access
from engine.access.changes import Add
from engine.access.principals import LOCAL, Scope, key
from engine.config import Settings
from engine.errors import InputTooLong, InvalidInput, Paused, QueueFull, StillLoading
from tests.web.access.conftest import Rows as AccessRows
from tests.web.access.conftest import bearer
from tests.web.conftest import serving
from tests.web.jobs.driving import MODEL, native, run
from tests.web.openai.test_batches import made
from web.api import jobs as api

pytestmark = pytest.mark.anyio


async def test_an_address_of_results_needs_no_key_and_is_good_for_an_hour(db, tmp_path, clock):
    secret, access = (
        credentials.new_key(),
        Access(Settings(state_dir=tmp_path, auth="keys"), AccessRows(db), access_rows.known(db)),
    )
    row = key(credentials.public_part(secret), "one", (Scope.CALL,), 1.0)
    await access.change(Add(row, credentials.key_hash(secret)), "test")
    engine = made(db, tmp_path, clock)
    engine.access = access
    async with serving(engine) as url, ClientSession() as http:
        job, results = await native(url, lambda client: run(client, source=["a"]), secret)
        ref = job["output"]["chunks"][0]["ref"]
        async with http.get(ref) as fetched, http.get(ref[:-1] + "x") as forged:
            assert (fetched.status, results["retrieved"]) == (200, 1)
            assert (forged.status, forged.headers["X-SIE-Error-Code"]) == (404, "RESULT_NOT_FOUND")
        for other in ("job_x.0.9.a", "x", "..", "job_%00.1.2.3", f"{job['id']}.0"):
            async with http.get(f"{url}/v1/jobs/results/{other}") as forged:
                assert forged.status == 404
        async with http.get(f"{url}/v1/jobs/{job['id']}") as unknown:
            assert unknown.status == 401
        clock.now += api.KEPT + 1
        async with http.get(ref) as late:
            assert late.status == 404
        again = await native(url, lambda client: client.jobs.results(job["id"]), secret)

    assert again["retrieved"] == 1


async def test_results_that_were_deleted_are_gone(url, http):
    job, _ = await native(url, lambda client: run(client, source=["a"]))
    ref = job["output"]["chunks"][0]["ref"]
    async with http.get("/v1/files", params={"purpose": "job_output"}) as response:
        [file] = (await response.json())["data"]
    async with http.delete(f"/v1/files/{file['id']}") as response:
        assert response.status == 200

    async with http.get(ref) as response:
        assert response.status == 404
    async with http.get(f"/v1/jobs/{job['id']}") as response:
        assert (await response.json())["output"]["chunks"][0]["ref"] is None


async def test_what_needs_a_control_plane_is_refused_as_not_offered(url):
    def drive(client: SIEClient) -> list[Exception]:
        job, _ = run(client, source=["a"])
        source = {"source": "postgres://warehouse?query=x", "model": MODEL, "idempotency_key": "k"}
        told = []
        for ask in (
            lambda: client.jobs.submit(**source, execution="plan"),
            lambda: client.jobs.execute(job["id"], 1, "k"),
            lambda: client.jobs.repair(job["id"], 1, 1, "k"),
        ):
            with pytest.raises(RequestError) as raised:
                ask()
            told.append(raised.value)
        return told

    for error in await native(url, drive):
        assert (error.status_code, error.code) == (404, "NOT_IMPLEMENTED") and "control plane" in str(error)


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"model": "no/such"}, 404, "no/such"),
        ({"operation": "dream"}, 400, "operation"),
        ({"operation": "score", "model": "fake/reranker"}, 400, "query"),
        ({"operation": "extract"}, 400, "does not extract"),
        ({"items": []}, 400, "items"),
        ({"items": None}, 400, "items"),
        ({"items": "a"}, 400, "items"),
        ({"items": [5]}, 400, "items[0]"),
        ({"items": [{"text": "a"}, {"id": 5}]}, 400, "items[1].id"),
        ({"items": [{"text": "a"}] * 5001}, 400, "5000"),
        ({"src": "upload://file-x", "execution": "run"}, 400, "either"),
        ({"items": None, "src": "upload://file-x", "execution": "run"}, 404, "file-x"),
        ({"items": None, "src": "upload://file-x"}, 404, "control plane"),
        ({"items": None, "src": "s3://a/b", "execution": "run"}, 404, "control plane"),
        ({"sink": "inplace"}, 404, "control plane"),
        ({"field_map": {}}, 400, "src"),
        ({"options": [1]}, 400, "options"),
        ({"options": {"class": "x"}}, 400, "class"),
        ({"output_types": ["x"]}, 400, "output_types"),
        ({"options": {"pooling": 10**30}}, 400, "64 bits"),
        ({"operation": "generate", "model": "fake/writer", "options": {"seed": 10**30}}, 400, "64 bits"),
        ({"options": {"x": float("nan")}}, 400, "cannot be read"),
        ({"options": {"x": "\ud800"}}, 400, "Unicode"),
        ({"options": {"is_qury": True}}, 400, "Did you mean is_query for is_qury?"),
        ({"options": {"zzz": True}}, 400, "Unknown options of a job that does encode: zzz."),
        (
            {"operation": "generate", "model": "fake/writer", "options": {"max_new_token": 4}},
            400,
            "Did you mean max_new_tokens for max_new_token?",
        ),
        (
            {"operation": "extract", "model": "fake/extractor", "options": {"treshold": 0.5}},
            400,
            "Did you mean threshold for treshold?",
        ),
        (
            {
                "operation": "score",
                "model": "fake/reranker",
                "options": {"query": {"text": "q", "metadata": {"x": -(10**30)}}},
            },
            400,
            "64 bits",
        ),
        (
            {
                "operation": "extract",
                "model": "fake/extractor",
                "options": {"labels": ["a"], "output_schema": {"maximum": 10**30}},
            },
            400,
            "64 bits",
        ),
    ],
)
async def test_a_job_that_cannot_be_is_refused_with_the_reason(http, tmp_path, fields, status, said):
    body = {"operation": "encode", "model": MODEL, "items": [{"text": "a"}], **fields}

    async with http.post("/v1/jobs", json=body) as response:
        told = await response.json()

    assert response.status == status and said in told["detail"]["message"], told
    assert not list(tmp_path.glob("files/*"))


async def test_many_items_go_into_a_file_and_not_into_one_body(http, engine):
    said = {"operation": "encode", "model": MODEL, "items": ["x" * api.MOST_BYTES]}
    async with http.post("/v1/jobs", data=io.BytesIO(json.dumps(said).encode())) as answer:
        told = await answer.json()

    assert answer.status == 413 and "upload its items as a file" in told["detail"]["message"]
    assert engine.batches.shelf.jobs(LOCAL) == []


async def test_jobs_are_no_batches_and_belong_to_who_made_them(db, tmp_path, clock):
    secrets, table = {}, AccessRows(db)
    access = Access(Settings(state_dir=tmp_path, auth="keys"), table, access_rows.known(db))
    for name, scope in (("one", Scope.CALL), ("two", Scope.CALL), ("chief", Scope.ADMIN)):
        secrets[name] = credentials.new_key()
        row = key(credentials.public_part(secrets[name]), name, (scope,), 1.0)
        await access.change(Add(row, credentials.key_hash(secrets[name])), "test")
    engine = made(db, tmp_path, clock)
    engine.access = access
    async with serving(engine) as url:
        job, _ = await native(url, lambda client: run(client, source=["a"]), secrets["one"])

        async def get(name: str, path: str) -> tuple[int, Any]:
            async with ClientSession(url, headers=bearer(secrets[name])) as http, http.get(path) as response:
                return response.status, await response.json()

        assert (await get("two", f"/v1/jobs/{job['id']}"))[0] == 404
        assert (await get("two", "/v1/jobs"))[1]["data"] == []
        assert len((await get("chief", "/v1/jobs"))[1]["data"]) == 1
        assert (await get("one", f"/v1/batches/{job['id']}"))[0] == 404
        assert (await get("one", "/v1/batches"))[1]["data"] == []
        assert {request.principal for request in engine.requests} <= set(access.principals)


@pytest.mark.parametrize(
    ("content", "field_map", "said"),
    [
        (b"\n \n", None, "no items"),
        (b'{"text": "a"}\noops\n', None, "items[1]"),
        (b'{"text": "a"}\n' * 4, None, "batch_lines"),
        (b'{"body": "a"}\n{"no": 1}\n', {"input_field": "body"}, "Line 2"),
        (b"[1]\n", {"input_field": "body"}, "line 1"),
        (b'{"text": "a"}\n', {"input_type": "document"}, "input_type"),
        (b'{"text": "a"}\n', {"carry": ["x"]}, "sinks"),
        (b'{"text": 5}\n', {"id_field": "x"}, "text"),
    ],
)
async def test_a_file_that_holds_no_items_is_refused_with_its_line(
    db, tmp_path, clock, content, field_map, said
):
    engine = made(db, tmp_path, clock, batch_lines=3)
    async with serving(engine) as url, ClientSession(url) as http:
        async with http.post("/v1/files", data=content) as response:
            file = (await response.json())["id"]
        source = {"src": f"upload://{file}", "execution": "run", "field_map": field_map}
        async with http.post("/v1/jobs", json={"operation": "encode", "model": MODEL, **source}) as response:
            told = await response.json()

    assert response.status in (400, 404) and said in told["detail"]["message"], told
    assert [path.name for path in tmp_path.glob("files/*")] == [file]


WISH = {"operation": "encode", "model": MODEL, "items": ["a", "b"], "output_types": ["sparse"]}


async def test_options_that_the_model_has_no_use_for_refuse_the_job_and_not_each_item(http, engine, tmp_path):
    engine.failure = InvalidInput("fake/encoder gives no sparse vectors.")
    async with http.post("/v1/jobs", json=WISH) as answer:
        told = await answer.json()

    assert (answer.status, told["detail"]["message"]) == (400, "fake/encoder gives no sparse vectors.")
    assert [len(request.items) for request in engine.estimated] == [1] and not engine.requests
    assert not list(tmp_path.glob("files/*"))


@pytest.mark.parametrize(
    "failure", [InputTooLong("Too long.").at(0), QueueFull().after(9.0), StillLoading(), Paused()]
)
async def test_an_item_that_is_wrong_and_what_time_mends_refuse_no_job(http, engine, failure):
    engine.failure = failure
    async with http.post("/v1/jobs", json=WISH) as answer:
        assert answer.status == 201


async def test_a_first_item_that_takes_long_to_prepare_keeps_no_job_waiting(http, engine, monkeypatch):
    monkeypatch.setattr(api, "CHECKING", 0.01)
    monkeypatch.setattr(engine, "estimate", lambda request: anyio.sleep(60))
    async with http.post("/v1/jobs", json=WISH) as answer:
        assert answer.status == 201
