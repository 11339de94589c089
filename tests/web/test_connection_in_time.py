"""How long a connection waits, in virtual time: for a head, between requests, and for its reader."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from replay.virtualtime import VirtualTimeLoop
from web.connection import HEAD, IDLE, LEAST, STALL, Connection

pytestmark = pytest.mark.anyio

ASKED = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
ENDLESS = ASKED.replace(b"/ ", b"/endless ", 1)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": VirtualTimeLoop}


class Pipe(asyncio.Transport):
    """To a client that takes all at once, or what it is told to take."""

    def __init__(self, protocol: Connection) -> None:
        super().__init__()
        self.protocol = protocol
        self.waiting = 0
        self.slow = False
        self.high, self.low = 2**16, 2**14
        self.closing = False
        self.said = b""
        self.ended: float | None = None
        """When; None while it is open."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.said += bytes(data)
        if not self.slow:
            return
        before, self.waiting = self.waiting, self.waiting + len(data)
        if before <= self.high < self.waiting:
            self.protocol.pause_writing()

    def take(self, size: int) -> None:
        before, self.waiting = self.waiting, max(0, self.waiting - size)
        if self.protocol.writing_paused and before > self.low >= self.waiting:
            self.protocol.resume_writing()
        if self.closing and not self.waiting:
            self.abort()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self.high, self.low = high, high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        """When what waits is gone."""
        self.closing = True
        if not self.waiting:
            self.abort()

    def abort(self) -> None:
        self.closing = True
        if self.ended is None:
            self.ended = asyncio.get_running_loop().time()
            self.protocol.connection_lost(None)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def answer(request: web.BaseRequest) -> web.Response:
    if request.path == "/endless":
        await asyncio.Event().wait()
    return web.Response(text="ok")


async def opened() -> Pipe:
    connection = Connection(web.Server(answer))
    pipe = Pipe(connection)
    connection.connection_made(pipe)
    await asyncio.sleep(0)
    return pipe


async def test_who_asks_nothing_is_left_after_a_while_and_without_a_word():
    pipe = await opened()
    await asyncio.sleep(1000)

    assert (pipe.ended, pipe.said) == (HEAD, b"")


async def test_a_head_that_trickles_ends_when_its_time_is_over():
    pipe = await opened()
    for letter in ASKED[:40]:
        if pipe.ended is None:
            pipe.protocol.data_received(bytes([letter]))
        await asyncio.sleep(1)

    assert pipe.ended == HEAD
    assert pipe.said.startswith(b"HTTP/1.1 408 ") and b"within 30 s" in pipe.said


async def test_after_an_answer_the_next_head_may_begin_later_and_has_its_own_time():
    pipe = await opened()
    for _ in range(3):
        pipe.protocol.data_received(ASKED)
        await asyncio.sleep(IDLE - 1)
        assert pipe.ended is None and pipe.said.count(b"200 OK")
    pipe.protocol.data_received(ASKED[:9])
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(1000)

    assert pipe.ended is not None and HEAD - 1 <= pipe.ended - began <= HEAD
    assert pipe.said.count(b"200 OK") == 3


async def test_an_idle_connection_ends_quietly():
    pipe = await opened()
    pipe.protocol.data_received(ASKED)
    await asyncio.sleep(1000)

    assert pipe.ended == IDLE and b"408" not in pipe.said


@pytest.mark.parametrize(("takes", "ends"), [(0, STALL), (LEAST - 1, STALL), (LEAST, None)])
async def test_a_reader_is_left_that_takes_hardly_anything_of_what_waits(takes, ends):
    pipe = await opened()
    pipe.protocol.data_received(ENDLESS)
    await asyncio.sleep(0.001)
    began = asyncio.get_running_loop().time()
    pipe.slow = True
    pipe.write(bytes(100 * LEAST))
    for _ in range(20):
        await asyncio.sleep(STALL - 0.001)
        pipe.take(takes)
        await asyncio.sleep(0.001)

    assert pipe.ended == (None if ends is None else pytest.approx(began + ends))


async def test_a_reader_that_catches_up_now_and_then_is_kept_however_much_waits_when_one_looks():
    pipe = await opened()
    pipe.protocol.data_received(ENDLESS)
    pipe.slow = True
    for _ in range(100):
        pipe.write(bytes(8 * LEAST))
        await asyncio.sleep(STALL * 0.7)
        pipe.take(8 * LEAST)
        if pipe.ended is not None:
            break

    assert pipe.ended is None


@pytest.mark.parametrize("asked", [ASKED, ASKED[:-2] + b"Connection: close\r\n\r\n"], ids=["kept", "closed"])
async def test_a_reader_is_left_that_does_not_take_the_end_of_an_answer(asked):
    pipe = await opened()
    pipe.slow = True
    pipe.protocol.data_received(asked)
    await asyncio.sleep(1000)

    assert b"200 OK" in pipe.said and pipe.ended == STALL


async def test_a_connection_that_is_given_up_waits_for_no_reader():
    pipe = await opened()
    pipe.slow = True
    pipe.protocol.data_received(ENDLESS)
    await asyncio.sleep(0.001)
    pipe.write(b"the beginning of an answer")
    pipe.protocol.force_close()

    assert pipe.ended is not None
