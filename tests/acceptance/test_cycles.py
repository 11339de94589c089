"""Ten thousand clients who connect, send and close in every way leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import orjson
import pytest

from tests.acceptance.counted import counts
from tests.acceptance.serving import Server, serving
from tests.weights import weights

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300), pytest.mark.alone]

TINY = "serai/splade-tiny-msmarco"
CYCLES, STEP, AT_ONCE = 10_000, 500, 32
GROWTH = 0.1
"""Of RSS over the last half: what is kept is counted above; this is for what only the system sees, and the
allocators keep some of what is taken in passing."""
BODY = orjson.dumps({"items": [{"text": "a parcel for the harbour"}]})
HEAD = (
    f"POST /v1/encode/{TINY} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    f"Accept: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
).encode()


@dataclass(frozen=True)
class Look:
    """At rest."""

    tasks: dict[str, int]
    """By what they run."""
    alive: dict[str, int]
    """Replies, open requests and the messages that carry them."""
    descriptors: int


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    weights(TINY)
    place = tmp_path / "counts"
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = root
    try:
        program = (sys.executable, "-m", "tests.acceptance.counted", str(place))
        with serving(tmp_path, program, memory="1GiB") as server:
            yield server, place
    finally:
        del os.environ["PYTHONPATH"]


async def test_ten_thousand_connections_leave_nothing_behind(counted: tuple[Server, Path]):
    server, place = counted
    await cycles(server, 2 * STEP)  # whatever is made once is made
    first = await at_rest(server, place)

    sizes, threads = [], []
    for _ in range(CYCLES // STEP):
        await cycles(server, STEP)
        sizes.append(server.seen.memory_info().rss)
        threads.append(server.seen.num_threads())

    last = await at_rest(server, place)
    assert last.descriptors == first.descriptors
    assert grown(first.alive, last.alive) == {}
    assert grown(first.tasks, last.tasks) == {}
    assert max(threads[-4:]) <= max(threads[:4]) + 1
    assert server.total("serai_held_request_bytes") == server.total("serai_waiting_jobs") == 0
    half = sizes[len(sizes) // 2 :]
    before, after = median(half[:3]), median(half[-3:])
    assert (after - before) / before < GROWTH, [size // 1024 for size in sizes]
    ended = {code: server.total("serai_requests_total", outcome=code) for code in ("ok", "CANCELLED")}
    assert min(ended.values()) > CYCLES / 20, ended


def grown(first: dict[str, int], last: dict[str, int]) -> dict[str, int]:
    """What there is more of, but for the two that an actor may hold more or fewer at any moment."""
    return {name: count for name, count in last.items() if count > first.get(name, 0) + 2}


async def at_rest(server: Server, place: Path) -> Look:
    """Once two looks in a row see the same."""
    look = None
    for _ in range(20):
        seen = await asyncio.to_thread(counts, server, place)
        earlier, look = look, Look(seen["tasks"], seen["alive"], server.seen.num_fds())
        if look == earlier:
            return look
        await asyncio.sleep(0.3)
    raise AssertionError(f"it never comes to rest: {look}")


async def cycles(server: Server, count: int) -> None:
    """In turns: closed before the answer, after it, in the middle of the body, and with the connection
    kept for a second request that nobody waits for."""
    where = urlsplit(server.url)
    assert where.hostname and where.port
    ways = (before_the_answer, after_the_answer, mid_body, kept_and_dropped)
    numbers = iter(range(count))

    async def client() -> None:
        for number in numbers:
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            await ways[number % len(ways)](reader, writer)
            if number % 3:
                writer.close()
            else:
                writer.transport.abort()

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))


async def before_the_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + BODY)
    await writer.drain()


async def after_the_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + BODY)
    assert await answer(reader) == b"HTTP/1.1 200 OK"


async def mid_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + BODY[: len(BODY) // 2])
    await writer.drain()


async def kept_and_dropped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await after_the_answer(reader, writer)
    await before_the_answer(reader, writer)


async def answer(reader: asyncio.StreamReader) -> bytes:
    """The status line, once all of the body is there."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.split(b":")[1]))
    return head.split(b"\r\n")[0]
