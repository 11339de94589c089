"""Clients that hang up leave no work behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.acceptance.asking import MINILM, ask, clients, encode
from tests.acceptance.serving import Server, serving
from tests.weights import weights

pytestmark = pytest.mark.anyio

QUEUED = 500
LONG = "a parcel for the harbour and another one " * 60
"""Longer than the model reads."""


@pytest.fixture
def one_slot(tmp_path: Path):
    weights(MINILM)
    # Batches are as large as the model takes, however long they run: the queue would take eight.
    with serving(tmp_path, memory="1GiB", slots=1, standard_target="1h", background_target="1h") as server:
        yield server


async def until(condition) -> None:
    while not await asyncio.to_thread(condition):  # noqa: ASYNC110  it is in another process
        await asyncio.sleep(0.02)


async def test_of_five_hundred_queued_requests_only_the_one_that_stayed_is_run(one_slot: Server):
    async with clients(one_slot.url) as session:
        await ask(session, encode("warm"))
        blocker = asyncio.create_task(ask(session, encode(*[LONG] * 64)))
        await until(lambda: one_slot.total("serai_device_busy_slots") == 1)
        callers = [asyncio.create_task(ask(session, encode(LONG + str(n)))) for n in range(QUEUED)]
        await until(lambda: one_slot.total("serai_waiting_jobs") >= QUEUED)

        stayed = callers.pop(250)
        await hang_up(one_slot, session, callers)
        left = one_slot.total("serai_waiting_jobs")
        batches = one_slot.total("serai_batches_total")
        status, _ = await stayed
        await blocker
        await until(lambda: one_slot.total("serai_waiting_jobs") == 0)

    assert status == 200
    assert left > QUEUED / 2, "the batch that held the slot ended before they hung up"
    in_flight, more = 1, 1
    assert one_slot.total("serai_batches_total") - batches <= in_flight + more
    assert one_slot.total("serai_jobs_dropped_total", reason="abandoned") >= left - 1
    assert one_slot.total("serai_held_request_bytes") == 0


async def hang_up(server: Server, session: ClientSession, callers: list[asyncio.Task]) -> None:
    """All of them; returns when the server has noticed."""
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    await until(lambda: server.log.read_text("utf-8").count('"status":499') >= len(callers))
