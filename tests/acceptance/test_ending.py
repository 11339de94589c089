"""How a server ends: it drains when told to, ends at once when told twice, and leaves no process behind."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tests.acceptance.asking import DOCUMENTS, JSON, MINILM, WRITER
from tests.acceptance.serving import PATIENCE, Server, serving
from tests.weights import weights

DOCUMENT = {"items": [{"document": {"data": "IyBIZWxsbw==", "format": "md"}}]}
GENERATE = f"/v1/generate/{WRITER.replace('/', '__')}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One of the test's own, to be ended."""
    with serving(tmp_path, memory="1GiB") as server:
        yield server


@contextmanager
def writing(server: Server, tokens: int) -> Iterator[Iterator[dict]]:
    """The pieces of a text, the first of which has been written."""
    weights(WRITER)
    body = {"prompt": "Count from one to a thousand.", "max_new_tokens": tokens, "stream": True}
    with server.http.stream("POST", GENERATE, json=body, headers={"Accept": "text/event-stream"}) as answer:
        assert answer.status_code == 200
        pieces = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {"))
        assert not next(pieces)["done"]
        yield pieces


def draining(server: Server) -> bool:
    return server.http.get("/readyz").status_code == 503


def test_told_to_stop_it_finishes_what_is_in_flight_and_takes_nothing_new(server: Server):
    with writing(server, tokens=60) as pieces:
        server.process.send_signal(signal.SIGTERM)
        server.until(lambda: draining(server))
        refused = server.http.post(f"/v1/encode/{MINILM}", json={"items": [{"text": "new"}]}, headers=JSON)
        alive = server.http.get("/healthz")
        last = list(pieces)[-1]

    assert (refused.status_code, refused.headers["X-SIE-Error-Code"]) == (503, "QUEUE_FULL")
    assert float(refused.headers["Retry-After"]) > 0
    assert refused.json()["detail"]["code"] == "QUEUE_FULL"
    assert alive.status_code == 200
    assert last["done"] and "error" not in last
    assert last["usage"]["completion_tokens"] > 1
    assert server.process.wait(PATIENCE) == 0
    assert "Traceback" not in server.said()


def family(server: Server) -> list[psutil.Process]:
    """The server's children, of which a converted document makes one."""
    answer = server.http.post(f"/v1/extract/{DOCUMENTS}", json=DOCUMENT, headers=JSON)
    assert "Hello" in answer.text
    children = server.seen.children(recursive=True)
    assert children
    return children


def test_killed_it_leaves_no_process_behind(server: Server):
    children = family(server)

    server.process.kill()
    server.process.wait(PATIENCE)

    assert psutil.wait_procs(children, timeout=PATIENCE)[1] == []


def test_told_twice_it_ends_at_once(server: Server):
    children = family(server)

    with pytest.raises(httpx.TransportError), writing(server, tokens=4000) as pieces:
        server.process.send_signal(signal.SIGTERM)
        server.until(lambda: draining(server))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == -signal.SIGTERM
        list(pieces)

    assert psutil.wait_procs(children, timeout=PATIENCE)[1] == []
