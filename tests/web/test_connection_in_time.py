"""How long a connection waits, in virtual time: for a head, between requests, and for its reader."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from replay.virtualtime import VirtualTimeLoop
from web.connection import HEAD, IDLE, LEAST, STALL, Connection

pytestmark = pytest.mark.anyio

HIGH, LOW = 2**16, 2**14
ASKED = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
ENDLESS = ASKED.replace(b"/ ", b"/endless ", 1)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": VirtualTimeLoop}


class Pipe(asyncio.Transport):
    """To a client that takes what it is told to take."""

    def __init__(self, protocol: Connection) -> None:
        super().__init__()
        self.protocol = protocol
        self.waiting = 0
        self.said = b""
        self.ended: float | None = None
        """When; None while it is open."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.said += bytes(data)
        before, self.waiting = self.waiting, self.waiting + len(data)
        if before <= HIGH < self.waiting:
            self.protocol.pause_writing()

    def take(self, size: int) -> None:
        before, self.waiting = self.waiting, max(0, self.waiting - size)
        if self.protocol.writing_paused and before > LOW >= self.waiting:
            self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.ended is not None

    def close(self) -> None:
        if self.ended is None:
            self.ended = asyncio.get_running_loop().time()
            self.protocol.connection_lost(None)

    abort = close

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
    pipe.write(bytes(100 * LEAST))
    for _ in range(20):
        await asyncio.sleep(STALL - 0.001)
        pipe.take(takes)
        await asyncio.sleep(0.001)

    assert pipe.ended == (None if ends is None else pytest.approx(began + ends))


async def test_a_reader_that_catches_up_now_and_then_is_kept_however_much_waits_when_one_looks():
    pipe = await opened()
    pipe.protocol.data_received(ENDLESS)
    for _ in range(100):
        pipe.write(bytes(2 * HIGH))
        await asyncio.sleep(STALL * 0.7)
        pipe.take(2 * HIGH)
        if pipe.ended is not None:
            break

    assert pipe.ended is None
