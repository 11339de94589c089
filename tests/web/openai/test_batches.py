"""Files and batches over HTTP: the official clients, bad input, and whose is whose."""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest
from aiohttp import ClientSession, FormData
from anyio import to_thread
from openai import AsyncOpenAI
from sie_sdk import SIEClient
from sqlite_utils import Database

from engine.access import credentials
from engine.access import rows as access_rows
from engine.access.access import Access
from engine.access.changes import Add
from engine.access.principals import LOCAL, Scope, key
from engine.batches import rows
from engine.batches.batches import Batches
from engine.batches.kept import Batch, File
from engine.batches.shelf import Shelf
from engine.config import Settings
from engine.errors import QueueFull
from engine.requests import Request, Response, ServiceClass
from tests.web.access.conftest import Rows as AccessRows
from tests.web.access.conftest import bearer
from tests.web.conftest import Clock, serving
from tests.web.fakes import FakeEngine, respond

pytestmark = pytest.mark.anyio

EMBEDDINGS = "/v1/embeddings"


class Rows:
    """The tables in a database, at once and in this thread."""

    def __init__(self, db: Database) -> None:
        self.db = db

    async def keep(self, files: Mapping[str, File | None], batches: Mapping[str, Batch | None]) -> None:
        with self.db.atomic():
            rows.keep(self.db, files, batches)


def made(db: Database, place: Path, clock: Clock, **settings: Any) -> FakeEngine:
    """An engine that has what `db` and `place` have."""
    said = Settings(state_dir=place, **settings)
    shelf = Shelf(said, Rows(db), rows.files(db), rows.batches(db))
    return FakeEngine(settings=said, batches=Batches(said, shelf, clock))


@pytest.fixture
def engine(db: Database, tmp_path: Path, clock: Clock) -> FakeEngine:
    return made(db, tmp_path, clock, file_bytes=100_000, files_bytes=150_000, batch_lines=200)


@asynccontextmanager
async def client(url: str, secret: str = "any") -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=secret, max_retries=0) as client:
        yield client


@pytest.fixture
async def official(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with client(url) as made:
        yield made


def line(custom_id: str, url: str = EMBEDDINGS, **body: Any) -> bytes:
    body = body or {"model": "fake/encoder", "input": custom_id}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}).encode() + b"\n"


def read(content: bytes) -> dict[str, dict[str, Any]]:
    found = [json.loads(each) for each in content.splitlines()]
    assert len({each["custom_id"] for each in found}) == len(found)
    return {each["custom_id"]: each for each in found}


async def run(official: AsyncOpenAI, content: bytes, endpoint: str = EMBEDDINGS, **fields: Any) -> Any:
    """The batch when it has ended."""
    file = await official.files.create(file=("in.jsonl", content), purpose="batch")
    fields = {"completion_window": "24h", **fields}
    batch = await official.batches.create(input_file_id=file.id, endpoint=endpoint, **fields)
    return await ended(official, batch.id)


async def ended(official: AsyncOpenAI, batch: str) -> Any:
    with anyio.fail_after(20):
        while True:
            found = await official.batches.retrieve(batch)
            if found.status in ("completed", "failed", "expired", "cancelled"):
                return found
            await anyio.sleep(0.02)


async def written(official: AsyncOpenAI, batch: str, count: int) -> None:
    while (await official.batches.retrieve(batch)).request_counts.completed < count:  # noqa: ASYNC110
        await anyio.sleep(0.02)


async def results(official: AsyncOpenAI, file: str | None) -> dict[str, dict[str, Any]]:
    return read((await official.files.content(file)).content) if file else {}


async def test_the_official_client_uploads_runs_and_downloads(official, engine, tmp_path):
    content = b"".join(line(f"c{n}") for n in range(100))

    batch = await run(official, content, metadata={"for": "a test"})

    assert (batch.status, batch.object, batch.metadata) == ("completed", "batch", {"for": "a test"})
    assert batch.request_counts.model_dump() == {"total": 100, "completed": 100, "failed": 0}
    assert batch.error_file_id is None and batch.errors is None
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at
    found = await results(official, batch.output_file_id)
    assert set(found) == {f"c{n}" for n in range(100)}
    answer = found["c7"]["response"]
    assert (answer["status_code"], found["c7"]["error"]) == (200, None)
    assert answer["body"]["data"][0]["object"] == "embedding" and len(answer["body"]["data"][0]["embedding"])
    assert {request.service_class for request in engine.requests} == {ServiceClass.BACKGROUND}
    kept = list((tmp_path / "files").iterdir())
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    assert {path.name for path in kept} == {batch.input_file_id, batch.output_file_id}


async def test_files_are_listed_by_pages_shown_and_deleted(official):
    files = [await official.files.create(file=(f"{n}.jsonl", b"{}\n"), purpose="batch") for n in range(3)]

    pages = [file.id async for file in official.files.list(limit=1)]
    oldest = await official.files.list(order="asc", limit=2)
    shown = await official.files.retrieve(files[0].id)
    gone = await official.files.delete(files[0].id)

    assert pages == [file.id for file in files[::-1]]
    assert [file.id for file in oldest.data] == [files[0].id, files[1].id] and oldest.has_more
    assert (shown.filename, shown.bytes, shown.purpose, shown.object) == ("0.jsonl", 3, "batch", "file")
    assert gone.deleted
    with pytest.raises(openai.NotFoundError):
        await official.files.content(files[0].id)


async def test_a_wrong_line_fails_alone(official):
    content = line("good") + line("bad", model="fake/encoder", input=[]) + line("who", model="x", input="a")

    batch = await run(official, content)

    assert batch.status == "completed"
    assert batch.request_counts.model_dump() == {"total": 3, "completed": 1, "failed": 2}
    assert set(await results(official, batch.output_file_id)) == {"good"}
    wrong = await results(official, batch.error_file_id)
    assert wrong["bad"]["response"]["status_code"] == 400
    assert wrong["bad"]["response"]["body"]["error"]["type"] == "invalid_request_error"
    assert wrong["who"]["response"]["body"]["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("content", "code", "number"),
    [
        pytest.param(line("a") + line("a"), "duplicate_custom_id", 2, id="twice"),
        pytest.param(line("a") + b"\n" + line("b", "/v1/rerank"), "mismatched_url", 3, id="url"),
        pytest.param(line("a") + b"{oops\n", "invalid_json_line", 2, id="json"),
        pytest.param(b"\xff\xfe\n" + line("a"), "invalid_json_line", 1, id="utf-8"),
        pytest.param(b"[1]\n", "invalid_request", 1, id="list"),
        pytest.param(b'{"custom_id": "a", "x": ' + b"[" * 5000, "invalid_json_line", 1, id="nested"),
        pytest.param(line("a").replace(b"POST", b"GET"), "invalid_method", 1, id="method"),
        pytest.param(b'{"custom_id":"a"}\n', "invalid_request", 1, id="missing"),
        pytest.param(b"\n \n", "empty_file", None, id="empty"),
        pytest.param(b"".join(line(f"{n}") for n in range(201)), "too_many_lines", 201, id="lines"),
    ],
)
async def test_a_file_that_is_wrong_fails_the_batch_with_the_line(official, engine, content, code, number):
    batch = await run(official, content)

    assert batch.status == "failed" and batch.failed_at
    assert [(each.code, each.line) for each in batch.errors.data] == [(code, number)]
    assert engine.requests == []


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        (EMBEDDINGS, {"model": "encoder", "input": "a", "encoding_format": "base64"}),
        ("/v1/chat/completions", {"model": "fake/writer", "messages": [{"role": "user", "content": "a"}]}),
        ("/v1/completions", {"model": "fake/writer", "prompt": "a"}),
        ("/v1/responses", {"model": "fake/writer", "input": "a"}),
        ("/v1/rerank", {"model": "fake/reranker", "query": "a", "documents": ["a", "b"]}),
        ("/v2/rerank", {"model": "fake/reranker", "query": "a", "documents": ["a", "b"]}),
        ("/v1/encode/fake/encoder", {"items": [{"text": "a"}]}),
        ("/v1/score/fake/reranker", {"query": {"text": "a"}, "items": [{"text": "a"}]}),
        ("/v1/extract/fake/extractor", {"items": [{"text": "abc"}]}),
        ("/v1/generate/fake__writer", {"prompt": "a"}),
    ],
)
async def test_every_call_can_be_a_line_and_is_answered_as_by_its_route(official, http, endpoint, body):
    batch = await run(official, line("one", endpoint, **body), endpoint)
    async with http.post(endpoint, json=body, headers={"Accept": "application/json"}) as response:
        straight = await response.json()

    found = await results(official, batch.output_file_id)
    said = found["one"]["response"]["body"]
    varying = {"id", "created", "created_at", "timing"}
    assert batch.status == "completed" and said.keys() == straight.keys()
    for name in said.keys() - varying - {"output"}:
        assert said[name] == straight[name], name


async def test_a_full_queue_makes_lines_wait_and_fails_none(official, engine):
    refused = 0

    def answer(request: Request) -> Response:
        nonlocal refused
        if len(engine.requests) % 3 == 0:
            refused += 1
            raise QueueFull().after(0.01)
        return respond(request)

    engine.answer = answer

    batch = await run(official, b"".join(line(f"{n}") for n in range(60)))

    assert refused > 5
    assert batch.request_counts.model_dump() == {"total": 60, "completed": 60, "failed": 0}
    assert len(await results(official, batch.output_file_id)) == 60


async def test_a_cancelled_batch_keeps_what_was_answered_and_runs_no_more(official, engine):
    reached = anyio.Event()

    def answer(request: Request) -> Response:
        if request.items[0].text == "slow":
            reached.set()
            raise QueueFull().after(3600)
        return respond(request)

    engine.answer = answer
    content = line("quick") + line("slow")
    file = await official.files.create(file=("in.jsonl", content), purpose="batch")
    batch = await official.batches.create(input_file_id=file.id, endpoint=EMBEDDINGS, completion_window="24h")
    with anyio.fail_after(10):
        await reached.wait()

    with pytest.raises(openai.BadRequestError, match="has not ended"):
        await official.files.delete(file.id)
    told = await official.batches.cancel(batch.id)
    after = await ended(official, batch.id)

    assert told.status == "cancelling" and (after.status, after.cancelled_at) == ("cancelled", 1_000_000)
    assert set(await results(official, after.output_file_id)) == {"quick"}
    with pytest.raises(openai.BadRequestError, match="is cancelled already"):
        await official.batches.cancel(batch.id)


async def test_what_is_not_run_within_the_window_is_told_so(official, engine, clock):
    answered: list[str | None] = []

    def answer(request: Request) -> Response:
        if request.items[0].text == "late":
            clock.now += 7200 if answered else 0
            raise QueueFull().after(0.01)
        answered.append(request.items[0].text)
        return respond(request)

    engine.answer = answer

    batch = await run(official, line("early") + line("late"), completion_window="1h")

    assert batch.status == "expired" and batch.expired_at > batch.expires_at
    assert batch.request_counts.model_dump() == {"total": 2, "completed": 1, "failed": 1}
    assert set(await results(official, batch.output_file_id)) == {"early"}
    late = (await results(official, batch.error_file_id))["late"]
    assert late["response"] is None and late["error"]["code"] == "batch_expired"


async def test_batches_are_listed_by_pages(official):
    ids = [(await run(official, line("a"))).id for _ in range(3)]

    assert [batch.id async for batch in official.batches.list(limit=2)] == ids[::-1]


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"endpoint": "/v1/audio"}, 400, "endpoint is"),
        ({"endpoint": "/v1/encode/no/such"}, 404, "no/such"),
        ({"input_file_id": "file-none"}, 404, "no file"),
        ({"completion_window": "soon"}, 400, "completion_window"),
        ({"completion_window": "0h"}, 400, "more than 0"),
        ({"completion_window": "999d"}, 400, "file_days"),
        ({"metadata": {"a": "b" * 513}}, 400, "metadata"),
        ({"metadata": {"a": 1}}, 400, "metadata"),
        ({"input_file_id": None}, 400, "input_file_id"),
    ],
)
async def test_a_batch_that_cannot_be_is_refused_with_the_reason(official, http, fields, status, said):
    file = await official.files.create(file=("in.jsonl", line("a")), purpose="batch")
    body = {"input_file_id": file.id, "endpoint": EMBEDDINGS, "completion_window": "24h", **fields}

    async with http.post("/v1/batches", json=body) as response:
        told = await response.json()

    assert response.status == status and said in told["error"]["message"]


@pytest.mark.parametrize("path", ["files?limit=0", "files?limit=x", "batches?after=no", "batches?order=up"])
async def test_a_page_that_cannot_be_is_refused(http, path):
    async with http.get(f"/v1/{path}") as response:
        assert response.status == 400 and (await response.json())["error"]["param"]


def form(*parts: tuple[str, bytes | str]) -> FormData:
    made = FormData()
    for name, value in parts:
        made.add_field(name, value, filename="a.jsonl" if isinstance(value, bytes) else None)
    return made


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        ({"data": form(("purpose", "vision"), ("file", b"{}"))}, 400, "purpose"),
        ({"data": form(("file", b"{}"), ("purpose", "vision"))}, 400, "purpose"),
        ({"data": form(("file", b"{}"), ("x", "y"))}, 400, "purpose"),
        ({"data": form(("purpose", b"batch"))}, 400, "file"),
        ({"data": form(("purpose", "a" * 5000), ("file", b"{}"))}, 400, "4096"),
        ({"data": form(("purpose", "batch"), ("file", b"a" * 100_001))}, 413, "file_bytes"),
        ({"data": b"a" * 100_001}, 413, "file_bytes"),
        ({"data": b"x", "headers": {"Content-Type": "multipart/form-data"}}, 400, "form"),
        ({"data": b"x", "headers": {"Content-Type": "multipart/form-data; boundary=b"}}, 400, "form"),
    ],
)
async def test_a_file_that_is_not_taken_leaves_nothing(http, tmp_path, sent, status, said):
    async with http.post("/v1/files", **sent) as response:
        told = await response.json()

    assert response.status == status and said in told["error"]["message"], told
    assert not list(tmp_path.glob("files/*"))


async def test_all_files_together_have_a_limit(http):
    async with http.post("/v1/files", data=b"a" * 90_000) as response:
        assert response.status == 200
    async with http.post("/v1/files", data=b"a" * 90_000) as response:
        told = await response.json()

    assert (response.status, told["error"]["code"]) == (507, "storage_full")
    assert "files_bytes" in told["error"]["message"]


async def test_the_published_client_of_the_native_wire_does_the_same(url, official):
    def drive() -> dict[str, Any]:
        with SIEClient(url) as native:
            file = native.files.upload(line("a") + line("b"), filename="mine.jsonl")
            batch = native.batches.create(input_file_id=file["id"], metadata={"k": "v"})
            assert native.batches.list()[0]["id"] == batch["id"]
            assert native.files.retrieve(file["id"])["filename"] == "mine.jsonl"
            return batch

    batch = await to_thread.run_sync(drive)
    after = await ended(official, batch["id"])

    def finish() -> bytes:
        with SIEClient(url) as native:
            content = native.files.content(native.batches.retrieve(batch["id"])["output_file_id"])
            assert native.files.delete(after.input_file_id)["deleted"]
            assert native.files.list_page(limit=1)["data"][0]["id"] == after.output_file_id
            return content

    assert set(read(await to_thread.run_sync(finish))) == {"a", "b"}


async def test_two_keys_do_not_see_each_others_and_an_admin_sees_all(db, tmp_path, clock):
    secrets, table = {}, AccessRows(db)
    access = Access(Settings(state_dir=tmp_path, auth="keys"), table, access_rows.known(db))
    for name, scope, models in (
        ("one", Scope.CALL, ("fake/w*",)),
        ("two", Scope.CALL, ()),
        ("chief", Scope.ADMIN, ()),
    ):
        secrets[name] = credentials.new_key()
        row = key(credentials.public_part(secrets[name]), name, (scope,), 1.0, models=models)
        await access.change(Add(row, credentials.key_hash(secrets[name])), "test")
    engine = made(db, tmp_path, clock)
    engine.access = access
    async with serving(engine) as url, client(url, secrets["one"]) as one, client(url, secrets["two"]) as two:
        mine = await run(one, line("a") + line("b", model="fake/writer", input="x"))
        theirs = await run(two, line("a"))

        assert (await results(one, mine.error_file_id))["a"]["response"]["status_code"] == 403
        assert theirs.request_counts.completed == 1
        assert {request.principal for request in engine.requests} <= set(access.principals)
        assert [batch.id for batch in (await two.batches.list()).data] == [theirs.id]
        with pytest.raises(openai.NotFoundError):
            await two.batches.retrieve(mine.id)
        with pytest.raises(openai.NotFoundError):
            await two.files.content(mine.input_file_id)
        with pytest.raises(openai.NotFoundError):
            await two.files.delete(mine.input_file_id)
        with pytest.raises(openai.NotFoundError):
            await two.batches.create(
                input_file_id=mine.input_file_id, endpoint=EMBEDDINGS, completion_window="24h"
            )
        async with ClientSession(url, headers=bearer(secrets["chief"])) as http:
            async with http.get("/v1/batches") as response:
                assert len((await response.json())["data"]) == 2


async def test_after_a_restart_the_rest_is_run_and_nothing_twice(db, tmp_path, clock):
    content = b"".join(line(f"c{n}") for n in range(50))
    first = made(db, tmp_path, clock)

    def answer(request: Request) -> Response:
        if int(str(request.items[0].text)[1:]) >= 20:
            raise QueueFull().after(3600)
        return respond(request)

    first.answer = answer
    async with serving(first) as url, client(url) as official:
        file = await official.files.create(file=("in.jsonl", content), purpose="batch")
        batch = await official.batches.create(
            input_file_id=file.id, endpoint=EMBEDDINGS, completion_window="24h"
        )
        with anyio.fail_after(10):
            await written(official, batch.id, 20)
    [kept] = first.batches.shelf.batches(LOCAL)
    output = tmp_path / "files" / kept.output_id
    output.write_bytes(output.read_bytes() + b'{"id": "batch_req_torn')  # as a crash leaves it
    (tmp_path / "files" / "file-lost.part").write_bytes(b"half")

    second = made(db, tmp_path, clock)
    async with serving(second) as url, client(url) as official:
        after = await ended(official, batch.id)
        found = await results(official, after.output_file_id)

    assert after.request_counts.model_dump() == {"total": 50, "completed": 50, "failed": 0}
    assert set(found) == {f"c{n}" for n in range(50)} and len(second.requests) == 30
    assert not (tmp_path / "files" / "file-lost.part").exists()
