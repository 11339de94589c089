"""What a line of a batch may ask, and what its answer says beside its route's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from openai import AsyncOpenAI
from sqlite_utils import Database

from engine.catalog import Catalog
from engine.requests import Task, Usage
from tests.web.conftest import Clock
from tests.web.fakes import FakeEngine, respond, spec
from tests.web.openai.test_batches import client, line, made, results, run

pytestmark = pytest.mark.anyio


@pytest.fixture
def engine(db: Database, tmp_path: Path, clock: Clock) -> FakeEngine:
    return made(db, tmp_path, clock)


@pytest.fixture
async def official(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with client(url) as made:
        yield made


async def test_no_line_is_streamed_also_of_calls_that_never_are(official):
    body = {"model": "fake/encoder", "input": "a"}
    batch = await run(official, line("good", **body, stream=False) + line("bad", **body, stream=True))

    assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 1)
    wrong = (await results(official, batch.error_file_id))["bad"]["response"]
    assert wrong["status_code"] == 400 and wrong["body"]["error"]["param"] == "stream"


async def test_a_line_may_name_an_adapter_by_its_models_name(official, engine):
    adapted = spec("org/adapted", Task.GENERATE, loras={"legal": {"sources": [{"directory": "/x"}]}})
    engine.catalog = Catalog({adapted.id: adapted}, {})
    body = {"model": "org/adapted:legal", "prompt": "a"}
    batch = await run(official, line("one", "/v1/completions", **body), "/v1/completions")

    assert batch.request_counts.completed == 1
    assert (engine.requests[0].model, engine.requests[0].options.lora) == ("org/adapted", "legal")


async def test_a_line_that_was_cut_says_so_in_its_answer(official, engine):
    engine.answer = lambda request: replace(respond(request), usage=Usage(input_tokens=3, truncated=1))
    batch = await run(official, line("one"))

    answer = (await results(official, batch.output_file_id))["one"]["response"]["body"]
    assert answer["usage"]["truncated"] == 1
