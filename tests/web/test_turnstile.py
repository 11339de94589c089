"""Requests that come in one turn of the event loop are begun in several; probes are not held up."""

from __future__ import annotations

import asyncio

import pytest

from web.turnstile import EACH_TURN, Turnstile

pytestmark = pytest.mark.anyio


class Turns:
    """Counts turns of the loop."""

    def __init__(self) -> None:
        self.now = 0
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self.now += 1
        asyncio.get_running_loop().call_soon(self._next)


async def passed(turnstile: Turnstile, count: int) -> list[tuple[int, int]]:
    """Who passed, in that order, and in which turn."""
    turns, seen = Turns(), list[tuple[int, int]]()

    async def one(number: int) -> None:
        await turnstile.pass_through()
        seen.append((number, turns.now))

    await asyncio.gather(*[one(number) for number in range(count)])
    return seen


async def test_a_few_pass_at_once():
    seen = await passed(Turnstile(), EACH_TURN)

    assert len({turn for _, turn in seen}) == 1


async def test_a_burst_passes_in_its_order_a_few_each_turn():
    seen = await passed(Turnstile(), 10 * EACH_TURN + 5)

    assert [number for number, _ in seen] == list(range(10 * EACH_TURN + 5))
    each = [[turn for _, turn in seen].count(turn) for turn in {turn for _, turn in seen}]
    assert max(each) == EACH_TURN and sorted(each)[0] == 5


async def test_whoever_left_takes_no_place_and_an_idle_turnstile_does_nothing():
    turnstile = Turnstile()
    all_of = [asyncio.ensure_future(turnstile.pass_through()) for _ in range(2 * EACH_TURN + 5)]
    await asyncio.sleep(0)
    left = all_of[EACH_TURN : 2 * EACH_TURN]
    for each in left:
        each.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert all(each.cancelled() for each in left) and all(each.done() for each in all_of[-5:])
    for _ in range(5):
        await asyncio.sleep(0)
    assert not turnstile._turning  # else the loop would never rest


async def test_a_probe_is_answered_while_others_wait_in_line(http, monkeypatch):
    reached = asyncio.Event()

    async def full(turnstile: Turnstile) -> None:
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Turnstile, "pass_through", full)
    waiting = asyncio.ensure_future(http.get("/v1/models"))
    await reached.wait()
    for probe in ("/readyz", "/healthz", "/livez"):
        async with http.get(probe) as response:
            assert response.status == 200

    assert not waiting.done()
    waiting.cancel()


async def test_a_request_waits_in_line_to_begin_and_again_to_be_answered(http, monkeypatch):
    passed = []

    async def seen(turnstile: Turnstile) -> None:
        passed.append(turnstile)

    monkeypatch.setattr(Turnstile, "pass_through", seen)
    async with http.get("/v1/models") as response:
        assert response.status == 200

    way_in, way_out = passed
    assert way_in is not way_out
