"""A burst of connections does not take the loop from those who are here, nor does the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections import Counter

import anyio
import pytest

from engine.catalog import Catalog
from tests.web.test_serving import Drainable, served, settings
from web import serving
from web.listening import at_most, bind

pytestmark = pytest.mark.anyio


async def test_a_burst_of_connections_is_taken_a_few_a_turn(monkeypatch):
    turn, taken = 0, Counter[int]()

    def counted(limit, runner):
        connected = at_most(limit, runner)

        def one():
            taken[turn] += 1
            return connected()

        return one

    monkeypatch.setattr(serving, "ACCEPTED", 3)
    monkeypatch.setattr(serving, "at_most", counted)
    async with served(Drainable(settings())) as (place, _):
        port = int(place.rstrip("/").rpartition(":")[2])
        burst = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
        with anyio.fail_after(5):
            while taken.total() < len(burst):
                turn += 1
                await asyncio.sleep(0)
        for each in burst:
            each.close()

    assert max(taken.values()) <= serving.ACCEPTED


async def test_what_was_imported_is_not_looked_through_again_and_the_rest_rarely(tmp_path):
    found = []

    def announce(place, engine):
        found.append((gc.get_freeze_count(), gc.get_threshold()))
        signal.raise_signal(signal.SIGTERM)

    endings = (signal.SIGTERM, signal.SIGINT)
    before = gc.get_threshold(), {s: signal.getsignal(s) for s in endings}
    chosen = settings(devices="simulated:one", state_dir=tmp_path, store=tmp_path, recording=False)
    try:
        with anyio.fail_after(20):
            await serving.run(chosen, Catalog({}, {}), bind(chosen), announce)
    finally:
        gc.unfreeze()
        gc.set_threshold(*before[0])
        for number, handler in before[1].items():
            signal.signal(number, handler)

    [(frozen, threshold)] = found
    assert frozen > 10_000 and threshold == serving.GARBAGE
