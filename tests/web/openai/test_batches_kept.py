"""What a batch has spent, how long files stay, whose rate counts, and a batch that is cancelled midway."""

from __future__ import annotations

from pathlib import Path

import anyio
import openai
import pytest
from aiohttp import FormData
from sqlite_utils import Database

from engine.access import credentials
from engine.access import rows as access_rows
from engine.access.access import Access
from engine.access.changes import Add
from engine.access.principals import LOCAL, Limits, Scope, key
from engine.config import Settings
from engine.errors import QueueFull
from engine.requests import Request, Response
from tests.web.access.conftest import Rows as AccessRows
from tests.web.conftest import Clock, serving
from tests.web.fakes import FakeEngine, respond
from tests.web.openai.test_batches import (
    EMBEDDINGS,
    client,
    ended,
    line,
    made,
    official,
    results,
    run,
    written,
)

pytestmark = pytest.mark.anyio
HOUR, DAY = 3600, 86_400
_ = official  # a fixture


@pytest.fixture
def engine(db: Database, tmp_path: Path, clock: Clock) -> FakeEngine:
    return made(db, tmp_path, clock, file_days=10)


async def test_a_batch_tells_the_tokens_of_what_was_answered(official):
    good = await run(official, line("a") + line("b") + line("bad", model="fake/encoder", input=[]))
    body = {"model": "fake/writer", "messages": [{"role": "user", "content": "a"}]}
    wrote = await run(official, line("c", "/v1/chat/completions", **body), "/v1/chat/completions")
    native = await run(
        official, line("d", "/v1/encode/fake/encoder", items=[{"text": "a"}]), "/v1/encode/fake/encoder"
    )
    failed = await run(official, line("bad", model="fake/encoder", input=[]))

    assert (good.usage.input_tokens, good.usage.output_tokens, good.usage.total_tokens) == (6, 0, 6)
    assert (
        good.usage.input_tokens_details.cached_tokens
        == good.usage.output_tokens_details.reasoning_tokens
        == 0
    )
    [answer] = (await results(official, wrote.output_file_id)).values()
    told = answer["response"]["body"]["usage"]
    assert (wrote.usage.input_tokens, wrote.usage.output_tokens) == (
        told["prompt_tokens"],
        told["completion_tokens"],
    )
    assert native.usage.input_tokens == 3 and native.model == "fake/encoder"
    assert failed.usage is None and good.model is None


async def test_after_a_restart_what_was_spent_before_counts(db, tmp_path, clock):
    first = made(db, tmp_path, clock)

    def answer(request: Request) -> Response:
        if request.items[0].text in "56789":
            raise QueueFull().after(3600)
        return respond(request)

    first.answer = answer
    async with serving(first) as url, client(url) as before:
        file = await before.files.create(
            file=("in.jsonl", b"".join(line(f"{n}") for n in range(10))), purpose="batch"
        )
        batch = await before.batches.create(
            input_file_id=file.id, endpoint=EMBEDDINGS, completion_window="24h"
        )
        with anyio.fail_after(10):
            await written(before, batch.id, 5)
        assert (await before.batches.retrieve(batch.id)).usage.input_tokens == 15

    second = made(db, tmp_path, clock)
    async with serving(second) as url, client(url) as after:
        assert (await ended(after, batch.id)).usage.input_tokens == 30
    third = made(db, tmp_path, clock)
    async with serving(third) as url, client(url) as later:
        assert (await later.batches.retrieve(batch.id)).usage.input_tokens == 30


async def test_files_go_when_their_makers_said(official, engine, clock):
    soon = {"anchor": "created_at", "seconds": 2 * HOUR}
    file = await official.files.create(file=("a.jsonl", line("a")), purpose="batch", expires_after=soon)
    usual = await official.files.create(file=("b.jsonl", line("a")), purpose="batch")
    batch = await run(official, line("a"), output_expires_after=soon)
    output = await official.files.retrieve(batch.output_file_id)

    assert file.expires_at - file.created_at == output.expires_at - output.created_at == 2 * HOUR
    assert usual.expires_at - usual.created_at == 10 * DAY
    clock.now += 2 * HOUR
    await engine.batches.shelf.sweep(clock())
    left = {each.id for each in (await official.files.list()).data}
    assert left == {usual.id, batch.input_file_id}
    with pytest.raises(openai.NotFoundError):
        await official.files.content(file.id)


@pytest.mark.parametrize(
    "after",
    [
        {"anchor": "created_at", "seconds": HOUR - 1},
        {"anchor": "created_at", "seconds": 11 * DAY},
        {"anchor": "last_active_at", "seconds": HOUR},
        {"anchor": "created_at", "seconds": "x"},
        {"anchor": "created_at"},
    ],
)
async def test_a_time_that_files_are_not_kept_for_is_refused_and_leaves_nothing(official, tmp_path, after):
    with pytest.raises(openai.BadRequestError, match="expires_after"):
        await official.files.create(file=("a.jsonl", line("a")), purpose="batch", expires_after=after)
    assert not list(tmp_path.glob("files/*"))
    file = await official.files.create(file=("a.jsonl", line("a")), purpose="batch")
    with pytest.raises(openai.BadRequestError, match="output_expires_after"):
        await official.batches.create(
            input_file_id=file.id, endpoint=EMBEDDINGS, completion_window="24h", output_expires_after=after
        )


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"expires_after": '{"anchor": "created_at", "seconds": 7200}'}, 2 * HOUR),
        ({"expires_after": "{"}, None),
        ({"expires_after": "7200"}, None),
        ({"expires_after": '{"anchor": "created_at", "seconds": 60}'}, None),
        ({"expires_after[foo]": "7200"}, None),
        ({"expires_after.seconds": "7200"}, None),
        ({"expires_after": "{}", "expires_after[anchor]": "created_at"}, None),
    ],
)
async def test_a_form_says_how_long_a_file_stays_as_json_too_and_no_other_way(http, tmp_path, fields, kept):
    form = FormData({"purpose": "batch", **fields})
    form.add_field("file", line("a"), filename="a.jsonl")

    async with http.post("/v1/files", data=form) as response:
        told = await response.json()

    if kept is None:
        assert response.status == 400 and "expires_after" in told["error"]["message"], told
        assert not list(tmp_path.glob("files/*"))
    else:
        assert (response.status, told["expires_at"] - told["created_at"]) == (200, kept)


async def test_lines_are_used_by_their_key_but_not_refused_for_its_rate(db, tmp_path, clock):
    secret = credentials.new_key()
    access = Access(Settings(state_dir=tmp_path, auth="keys"), AccessRows(db), access_rows.known(db))
    row = key(
        credentials.public_part(secret),
        "one",
        (Scope.CALL,),
        1.0,
        limits=Limits(rate=0.001, burst=2, concurrency=1),
    )
    await access.change(Add(row, credentials.key_hash(secret)), "test")
    engine = made(db, tmp_path, clock)
    engine.access = access
    async with serving(engine) as url, client(url, secret) as mine:
        batch = await run(mine, b"".join(line(f"{n}") for n in range(40)))  # which takes both of its requests
        with pytest.raises(openai.RateLimitError):
            await mine.embeddings.create(model="fake/encoder", input="a")

    assert batch.request_counts.completed == 40
    assert {request.principal for request in engine.requests} == {row.id}


async def test_a_batch_that_is_cancelled_midway_has_every_answer_once_and_counts_them(official, engine):
    """Some lines are written, some fail, some are under way, most were never begun."""
    engine.wait = 0.01
    content = b"".join(line(f"g{n}") + line(f"b{n}", model="x", input="a") for n in range(200))
    file = await official.files.create(file=("in.jsonl", content), purpose="batch")
    batch = await official.batches.create(input_file_id=file.id, endpoint=EMBEDDINGS, completion_window="24h")
    with anyio.fail_after(20):
        await written(official, batch.id, 5)

    await official.batches.cancel(batch.id)
    after = await ended(official, batch.id)
    asked = len(engine.requests)
    await anyio.sleep(0.1)

    good, wrong = await results(official, after.output_file_id), await results(official, after.error_file_id)
    counts = after.request_counts
    assert after.status == "cancelled" and 5 <= counts.completed < 200
    assert (len(good), len(wrong), counts.total) == (counts.completed, counts.failed, 400)
    assert all(name.startswith("g") for name in good) and all(name.startswith("b") for name in wrong)
    assert {each["response"]["body"]["error"]["code"] for each in wrong.values()} == {"model_not_found"}
    assert after.usage.input_tokens == 3 * len(good) and len(engine.requests) == asked
    [kept] = engine.batches.shelf.batches(LOCAL)
    assert kept.counts.completed == len(good)
