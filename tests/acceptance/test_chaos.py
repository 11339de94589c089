"""Under load and in small: whatever is done to a server, its other clients are answered, and nothing that was
acknowledged is lost. The tests share one server; the last one ends it.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.acceptance import chaos
from tests.acceptance.chaos import NO_ANSWER, under_load
from tests.acceptance.serving import Server
from tests.acceptance.simulated import BROKEN, ENCODER, GREEDY, HUGE, SLOW, STALLED, WRITER, simulated
from tests.weights import weights

pytestmark = pytest.mark.anyio
CALLERS = 8
LINES = 200
TOKENS = 60


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """A small one for the server's state; None where nobody may mount one."""
    try:
        with chaos.small_disk(tmp_path_factory.mktemp("small") / "disk", 16) as disk:
            yield disk
    except PermissionError:
        yield None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, disk: Path | None) -> Iterator[Server]:
    weights(chaos.DOCUMENTS)
    place = tmp_path_factory.mktemp("chaos")
    with simulated(place, state_dir=disk or place / "state") as running:
        started = {"name": "all", "payloads": {"models": [ENCODER], "seconds": 600, "max_bytes": 2**20}}
        running.http.post("/v1/admin/recordings/start", json=started).raise_for_status()
        running.http.post(f"/v1/admin/models/{WRITER}/pin", headers=chaos.JSON).raise_for_status()
        yield running


async def test_a_document_child_that_is_killed_fails_its_document_alone(server: Server) -> None:
    async with under_load(server, CALLERS) as (session, load):
        hit, after = await chaos.kill_a_document_child(server, session)

    assert (hit, after) == ("INFERENCE_ERROR", "200")
    assert set(load.seen) == {"200"}


async def test_loads_that_fail_stall_or_do_not_fit_hurt_only_who_asked(server: Server) -> None:
    async with under_load(server, CALLERS) as (session, load):
        seen = await chaos.fail_loads(session, 4)

    assert seen == {
        BROKEN: Counter(MODEL_LOAD_FAILED=4),
        STALLED: Counter(MODEL_LOADING=4),
        HUGE: Counter(INSUFFICIENT_MEMORY=4),
        f"{GREEDY}, more than fits": Counter(RESOURCE_EXHAUSTED=4),
        f"{GREEDY}, what fits": Counter({"200": 4}),
    }
    assert set(load.seen) == {"200"}


async def test_clients_that_leave_in_the_middle_leave_nothing_behind(server: Server) -> None:
    async with under_load(server, CALLERS) as (session, load):
        async with writing(session, TOKENS):
            held = server.total("serai_device_held_bytes", line="kv")
        await chaos.cut_streams(server, session, 6)
        await chaos.cut_answers(server, 3)

    assert held > 0
    assert set(load.seen) == {"200"}
    server.until(lambda: at_rest(server))


def at_rest(server: Server) -> bool:
    """Nothing waits, nothing runs, and no byte is held for anybody's request or text."""
    gone = ("serai_waiting_jobs", "serai_device_busy_slots", "serai_held_request_bytes")
    return not any(map(server.total, gone)) and not server.total("serai_device_held_bytes", line="kv")


async def test_on_a_full_disk_calls_are_answered_and_no_line_of_a_batch_is_lost(
    server: Server, disk: Path | None
) -> None:
    if disk is None:
        pytest.skip("a small disk needs root")
    async with under_load(server, CALLERS) as (_, load):
        told, done = await asyncio.to_thread(without_disk, server, disk)

    assert set(load.seen) == {"200"}
    assert told == {"pin": "507 STORAGE_FULL", "file": "507 storage_full", "ready": "200"}
    assert sorted(done) == sorted(f"c{number}" for number in range(LINES))


def without_disk(server: Server, disk: Path) -> tuple[dict[str, str], list[str]]:
    """What acts were told meanwhile, and which lines of a batch were answered in the end."""
    batch = chaos.batch_of(server, LINES, SLOW)  # it is not over before the disk is full
    server.until(lambda: server.http.get(batch).json()["request_counts"]["completed"] > 0)
    with chaos.filled(disk):
        told = chaos.acts_without_disk(server)
        for said in ("traffic is not recorded", "cannot be written"):
            server.until(lambda said=said: said in server.log.read_text("utf-8"))
    return told, chaos.ended(server, batch)


async def test_told_to_stop_it_ends_what_it_began_and_has_kept_all_that_it_acknowledged(
    server: Server, disk: Path | None
) -> None:
    before = server.total("serai_requests_total")
    async with under_load(server, CALLERS) as (session, load):
        async with writing(session, TOKENS) as answer:
            ended = asyncio.create_task(chaos.end(server))
            pieces = [line async for line in answer.content if line.startswith(b"data: {")]
        status = await ended

    last = json.loads(pieces[-1][6:])
    assert last["done"] and last["usage"]["completion_tokens"] == TOKENS
    assert status == 0 and "Traceback" not in server.said()
    assert set(load.seen) <= {"200", "QUEUE_FULL", NO_ANSWER}
    assert load.seen["200"] >= CALLERS and load.without_retry == 0
    pins, recorded, lost = kept(disk or server.log.parent / "state")
    assert pins == [WRITER]
    assert recorded + lost >= before + load.seen["200"], "rows that are neither there nor counted as lost"


def writing(session: ClientSession, tokens: int) -> Any:
    """A stream whose writing has begun when it is entered."""
    body = {"prompt": "a b c", "max_new_tokens": tokens, "stream": True}
    path = f"/v1/generate/{WRITER.replace('/', '__')}"
    return session.post(path, json=body, headers={"Accept": "text/event-stream"})


def kept(state: Path) -> tuple[list[str], int, int]:
    """Pins, rows of requests, and how many are known to be missing."""
    with closing(sqlite3.connect(state / "state.db")) as books:
        pins = [unit for (unit,) in books.execute("select unit from pins")]
    with closing(sqlite3.connect(state / "traffic.db")) as traffic:
        (recorded,) = traffic.execute("select count(*) from requests").fetchone()
        (lost,) = traffic.execute("select coalesce(sum(rows), 0) from losses").fetchone()
    return pins, recorded, lost
