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
    ],
    ids=["long header", "unknown encoding", "no gzip", "bad length", "unknown expectation", "and nowhere"],
)
async def test_what_cannot_be_a_request_is_told_in_the_envelope(raw, words, caplog):
    status, headers, said = await asked(raw)

    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert (status, headers["x-sie-error-code"]) == (400, "INVALID_INPUT")
    assert headers["content-type"] == "application/json" and headers["server"] == "serai"
    assert said["detail"]["request_id"] == headers["x-sie-request-id"]
    assert words.lower() in said["detail"]["message"].lower()


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
