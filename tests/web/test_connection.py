"""What the HTTP library refuses by itself: the same envelope as everything else that is refused."""

from __future__ import annotations

import json
import logging

import anyio
import pytest

from engine.config import Settings
from tests.web.fakes import FakeEngine
from tests.web.test_serving import Drainable, served

pytestmark = pytest.mark.anyio

BODY = b'{"items":[{"text":"hello"}]}'
HEAD = b"POST /v1/encode/fake/encoder HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
FILE = b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\n"


async def asked(raw: bytes, engine: FakeEngine | None = None) -> tuple[int, dict[str, str], dict]:
    """Status, headers and body of the answer to bytes on a socket."""
    async with served(engine or Drainable(Settings(port=0))) as (place, _):
        host, _, port = place.rstrip("/").rpartition("//")[2].partition(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(raw)
            said = b""
            with anyio.fail_after(5):
                while b"\r\n\r\n" not in said or not said.endswith(b"}"):
                    said += await stream.receive()
    head, _, body = said.partition(b"\r\n\r\n")
    status, *lines = head.decode().splitlines()
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(status.split()[1]), headers, json.loads(body)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (HEAD + b"X-Long: " + b"a" * 20_000 + b"\r\n\r\n", "too long"),
        (HEAD + b"Content-Encoding: br\r\nContent-Length: 28\r\n\r\n" + BODY, "encod"),
        (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 28\r\n\r\n" + BODY, "encoded"),
        (HEAD + b"Content-Length: many\r\n\r\n", "no proper HTTP"),
        (HEAD + b"Expect: the-unexpected\r\nContent-Length: 28\r\n\r\n" + BODY, "Expect"),
        (b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nExpect: x\r\nContent-Length: 0\r\n\r\n", "Expect"),
        (HEAD + b"Content-Encoding: rot13\r\nContent-Length: 28\r\n\r\n" + BODY, "gzip"),
        (FILE + b"Content-Encoding: gzip, gzip\r\nContent-Length: 28\r\n\r\n" + BODY, "gzip"),
        (b"this is no request\r\n\r\n", "no proper HTTP"),
        (b"GET / HTTP/9\r\nHost: localhost\r\n\r\n", "no proper HTTP"),
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(40) + b"\r\n\r\n", "HTTPS"),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", "too long"),
        (HEAD + b"".join(b"X-%d: a\r\n" % n for n in range(1000)) + b"\r\n", "headers"),
        (HEAD + b"X: a\0b\r\n\r\n", "header"),
        (b"GET / HTTP/1.1\r\n\r\n", "Host"),
        (HEAD + b"Content-Length: 28\r\nTransfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding"),
        (HEAD + b"Transfer-Encoding: bogus\r\n\r\n" + BODY, "Transfer-Encoding"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + BODY + b"\r\n0\r\n\r\n", "chunk"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1c\r\n" + BODY + b"\r\nzz\r\n\r\n", "chunk"),
        (FILE + b"Transfer-Encoding: chunked\r\n\r\n1c\r\n" + BODY + b"\r\nzz\r\n\r\n", "chunk"),
    ],
    ids=[
        *("long header", "encoding not here", "no gzip", "bad length", "unknown expectation", "and nowhere"),
        *("unknown encoding", "several encodings", "no request", "no version", "TLS", "long address"),
        *("many headers", "NUL", "no host", "length and chunks", "unknown transfer"),
        *("bad chunk", "bad chunk after a good one", "bad chunk of a file"),
    ],
)
async def test_what_cannot_be_a_request_is_told_in_the_envelope(raw, words, caplog):
    status, headers, said = await asked(raw)

    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert (status, headers["x-sie-error-code"]) == (400, "INVALID_INPUT")
    assert headers["content-type"] == "application/json" and headers["server"] == "serai"
    told = said.get("detail") or {**said["error"], "request_id": headers["x-sie-request-id"]}
    assert told["request_id"] == headers["x-sie-request-id"]
    assert words.lower() in told["message"].lower()


async def test_a_client_that_asks_whether_it_may_go_on_is_told_to():
    async with served(Drainable(Settings(port=0))) as (place, _):
        host, _, port = place.rstrip("/").rpartition("//")[2].partition(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(HEAD + b"Expect: 100-continue\r\nContent-Length: 28\r\n\r\n")
            first = await stream.receive()
            await stream.send(BODY)
            second = await stream.receive()

    assert first.startswith(b"HTTP/1.1 100")
    assert second.startswith(b"HTTP/1.1 200")
