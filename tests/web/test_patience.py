"""Whoever is slow with a request's head or its body is told so: real sockets, and the limits made small."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
import pytest

from web import arriving, connection
from web.connection import LEAST, unread

pytestmark = pytest.mark.anyio

HEAD = b"POST /v1/encode/fake/encoder HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"items":[{"text":"hello"}]}'
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[anyio.abc.SocketStream]:
    host, _, port = url.removeprefix("http://").partition(":")
    async with await anyio.connect_tcp(host, int(port)) as stream:
        yield stream


async def rest(stream: anyio.abc.SocketStream) -> bytes:
    """Until the server hangs up."""
    said = b""
    with anyio.fail_after(10):
        while True:
            try:
                said += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return said


async def trickle(stream: anyio.abc.SocketStream) -> None:
    """Never silent for as long as counts as silence."""
    with suppress(anyio.BrokenResourceError):  # it was given up
        while True:
            await stream.send(b" ")
            await anyio.sleep(0.1)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(connection, "HEAD", 0.3)


@pytest.mark.parametrize("before", [b"", WHOLE], ids=["first", "second"])
async def test_a_head_that_comes_too_slowly_is_told_the_limit(url, impatient, before):
    async with connected(url) as stream:
        if before:
            await stream.send(before)
            await stream.receive()
        await stream.send(HEAD[:20])
        said = await rest(stream)

    assert said.startswith(b"HTTP/1.1 408 ") and b"Connection: close" in said
    assert b"DEADLINE_EXCEEDED" in said and b"0.3 s" in said


async def test_who_connects_and_asks_nothing_is_left_without_a_word(url, impatient):
    async with connected(url) as stream:
        assert await rest(stream) == b""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/encode/fake/encoder", "application/json"),
        ("/v1/admin/recordings/r/import", "application/gzip"),
        ("/v1/audio/transcriptions", "multipart/form-data; boundary=x"),
    ],
)
async def test_a_body_that_trickles_is_given_up_with_the_limits(url, monkeypatch, path, kind):
    monkeypatch.setattr(arriving, "STALL", 0.3)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: 1000\r\n\r\n"
    async with connected(url) as stream, anyio.create_task_group() as tasks:
        await stream.send(head.encode())
        tasks.start_soon(trickle, stream)
        with anyio.fail_after(10):
            said = await stream.receive()
        tasks.cancel_scope.cancel()

    assert said.startswith(b"HTTP/1.1 408 "), said
    assert b"512 bytes a second" in said


async def test_what_the_system_holds_for_a_reader_is_unread_too():
    """It makes room in steps that are larger than what a slow reader takes in a minute."""
    loop = asyncio.get_running_loop()
    with (
        socket.create_server(("127.0.0.1", 0)) as ours,
        socket.create_connection(ours.getsockname()) as client,
    ):
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours.accept()[0])
        transport.write(bytes(2**25))
        before = unread(transport)
        left = 2**18
        while left:
            left -= len(client.recv(left))

        assert before > transport.get_write_buffer_size()
        with anyio.fail_after(10):
            while unread(transport) > before - LEAST:  # noqa: ASYNC110 - the system tells nobody
                await anyio.sleep(0.01)
        transport.abort()
        await anyio.lowlevel.checkpoint()
