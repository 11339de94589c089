"""Log lines as they are written: fields, context, and never a word of a payload or a key."""

from __future__ import annotations

import io
import json
import logging

import anyio
import pytest
from aiohttp import ClientSession, FormData
from structlog.contextvars import bound_contextvars

from engine.config import Settings
from engine.logs import fields_logger
from tests import simulation
from tests.web.conftest import serving
from web.logs import Sender, log_to

pytestmark = pytest.mark.anyio

MARKER = "zebrafishmarker"
QUICK = {"load_seconds": 0.01}
MODELS = simulation.catalog(
    simulation.model("a/encoder", options=QUICK),
    simulation.model("a/reranker", ("score",), outputs=[], dims={}, options=QUICK),
    simulation.model("a/extractor", ("extract",), outputs=[], dims={}, options=QUICK),
    simulation.model("a/writer", ("generate",), outputs=[], dims={}, options=QUICK),
    simulation.model("a/broken", options={**QUICK, "load_error": "no such tensor"}),
    simulation.model("a/fragile", options={**QUICK, "poison": MARKER}),
)


class Lines(io.StringIO):
    def read_all(self) -> list[dict]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def lines():
    return Lines()


def settings(**values: object) -> Settings:
    return Settings(log_level="debug", log_format="json", **values)


def calls() -> list[tuple[str, str, dict]]:
    """Each route that takes content, with the marker in it, as it should be and as it should not."""
    item = {"text": MARKER, "id": MARKER}
    chat = [{"role": "user", "content": MARKER}]
    good = [
        ("/v1/encode/a/encoder", {"items": [item]}),
        ("/v1/encode/a/fragile", {"items": [item, {"text": "fine"}]}),
        ("/v1/encode/a/broken", {"items": [item]}),
        ("/v1/encode/a/writer", {"items": [item]}),
        (f"/v1/encode/{MARKER}", {"items": [item]}),
        (f"/{MARKER}?q={MARKER}", {"items": [item]}),
        ("/v1/score/a/reranker", {"query": item, "items": [item]}),
        ("/v1/extract/a/extractor", {"items": [item], "params": {"labels": [MARKER]}}),
        ("/v1/generate/a/writer", {"prompt": MARKER, "max_new_tokens": 4}),
        ("/v1/generate/a/writer", {"prompt": MARKER, "max_new_tokens": 4, "stream": True}),
        ("/v1/estimate", {"model": "a/encoder", "items": [item]}),
        ("/v1/rerank", {"model": "a/reranker", "query": MARKER, "documents": [MARKER]}),
        ("/v2/rerank", {"model": "a/reranker", "query": MARKER, "documents": [MARKER]}),
        ("/v1/embeddings", {"model": "a/encoder", "input": MARKER}),
        ("/v1/embeddings", {"model": "a/encoder", "input": MARKER, MARKER: MARKER}),
        ("/v1/chat/completions", {"model": "a/writer", "messages": chat, "max_tokens": 4}),
        ("/v1/chat/completions", {"model": "a/writer", "messages": chat, "max_tokens": 4, "stream": True}),
        ("/v1/completions", {"model": "a/writer", "prompt": MARKER, "max_tokens": 4}),
        ("/v1/responses", {"model": "a/writer", "input": MARKER, "max_output_tokens": 16}),
        ("/tei/a/encoder/embed", {"inputs": MARKER}),
        ("/tei/a/encoder/tokenize", {"inputs": MARKER}),
        ("/tei/a/reranker/rerank", {"query": MARKER, "texts": [MARKER]}),
    ]
    # An option that nobody knows, and the same with a type that does not fit.
    bad = [(path, {**body, "items": MARKER, "input": {MARKER: 1}}) for path, body in good]
    return [("POST", path, body) for path, body in good + bad]


async def test_no_line_has_a_word_of_what_was_sent(lines):
    with log_to(lines, settings()):
        async with simulation.engine(MODELS, max_item_text_bytes=2000) as engine, serving(engine) as url:
            async with ClientSession(url) as http:
                for method, path, body in calls():
                    async with http.request(method, path, json=body) as answer:
                        await answer.read()
                for data in (
                    MARKER.encode(),
                    b'{"items": [{"text": "' + MARKER.encode(),
                    b"\xc1" + MARKER.encode(),
                ):
                    for kind in ("application/json", "application/msgpack"):
                        headers = {"Content-Type": kind}
                        async with http.post("/v1/encode/a/encoder", data=data, headers=headers) as answer:
                            assert answer.status == 400
                long = {"items": [{"text": MARKER * 1000}]}
                async with http.post("/v1/encode/a/encoder", json=long) as answer:
                    assert answer.status in (400, 413)
                async with http.post("/login", data=FormData({"name": "x", "password": MARKER})) as answer:
                    await answer.read()
            port = int(url.rpartition(":")[2])
            async with await anyio.connect_tcp("127.0.0.1", port) as raw:
                await raw.send(f"{MARKER} {MARKER}\r\n{MARKER}\r\n\r\n".encode())
                with anyio.move_on_after(1):
                    await raw.receive()

    written = lines.getvalue()
    assert len(lines.read_all()) > 50
    assert MARKER not in written
    assert any(
        "fragile" in str(line) and line["status"] >= 400 for line in lines.read_all() if "status" in line
    )
    assert '"event":"a batch of 2 failed and is halved: ' in written
    assert '"exception":"Traceback' in written


async def test_what_a_bug_says_is_left_out_and_where_it_was_is_not(lines):
    with log_to(lines, settings()):
        try:
            try:
                raise ValueError(MARKER)
            except ValueError as error:
                raise KeyError(MARKER) from error
        except KeyError:
            logging.getLogger("web.middleware").exception("it failed")
            logging.getLogger("engine.loading").exception("a/b could not be loaded")

    near, far = lines.read_all()
    assert MARKER not in near["exception"] and MARKER in far["exception"]
    assert near["exception"].index("builtins.ValueError") < near["exception"].index("builtins.KeyError")
    assert "test_logs.py" in near["exception"]


async def test_one_line_a_request_says_where_its_time_went_and_leads_to_its_batch_and_its_load(lines):
    with log_to(lines, settings()):
        async with simulation.engine(MODELS) as engine, serving(engine) as url, ClientSession(url) as http:
            body = {"items": [{"text": "one two"}, {"text": "three"}]}
            headers = {"X-Request-ID": "job-7"}
            async with http.post("/v1/encode/a/encoder", json=body, headers=headers) as answer:
                assert (answer.status, answer.headers["X-Request-ID"]) == (200, "job-7")
            async with http.get("/v1/models") as answer:
                assert answer.headers["X-Request-ID"] not in ("", "job-7")

    said = lines.read_all()
    of = [line for line in said if line.get("request_id") == "job-7"]
    (access,) = [line for line in of if line["event"] == "request"]
    assert (access["method"], access["route"], access["status"]) == ("POST", "/v1/encode/{model}", 200)
    assert (access["model"], access["task"], access["class"]) == ("a/encoder", "encode", "standard")
    assert (access["items"], access["cost"], access["truncated"], access["degraded"]) == (2, 3, 0, "")
    assert access["total_ms"] >= access["load_ms"] + access["queue_ms"] + access["run_ms"]
    assert access["load_ms"] > 0
    ran = [line["batch"] for line in said if line["event"] == "batch ran"]
    assert access["batches"] and set(access["batches"]) <= set(ran)
    (loaded,) = [line for line in said if line["event"] == "loaded"]
    assert (loaded["device"], loaded["thrash"]) == (access["device"], False) and loaded["load_ms"] > 0
    (looked,) = [line for line in said if line.get("route") == "/v1/models"]
    assert "model" not in looked


@pytest.mark.parametrize("sent", ["", "two words", "x" * 200, "-first"])
async def test_a_name_that_cannot_stand_in_a_line_is_replaced(lines, sent):
    with log_to(lines, settings()):
        async with simulation.engine(MODELS) as engine, serving(engine) as url, ClientSession(url) as http:
            async with http.get("/v1/models", headers={"X-Request-ID": sent}) as answer:
                given = answer.headers["X-Request-ID"]

    assert given != sent
    assert [line["request_id"] for line in lines.read_all() if line["event"] == "request"] == [given]


async def test_a_librarys_lines_have_the_same_form_and_the_context(lines):
    with log_to(lines, settings()), bound_contextvars(request_id="r1"):
        logging.getLogger("transformers.something").warning("%d tensors", 3)

    (line,) = [line for line in lines.read_all() if line["logger"] == "transformers.something"]
    assert (line["event"], line["level"], line["logger"]) == (
        "3 tensors",
        "warning",
        "transformers.something",
    )
    assert (line["request_id"], line["timestamp"][-6:]) == ("r1", "+00:00")


async def test_the_level_is_a_setting(lines):
    with log_to(lines, Settings(log_level="warning", log_format="json")):
        fields_logger("engine.x").info("no")
        fields_logger("engine.x").warning("yes", unit="u")

    assert [(line["event"], line["unit"]) for line in lines.read_all()] == [("yes", "u")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "form", "machines"),
    [
        (io.StringIO, "auto", True),
        (Terminal, "auto", False),
        (Terminal, "json", True),
        (io.StringIO, "console", False),
    ],
)
def test_lines_are_for_people_on_a_terminal_and_for_machines_elsewhere(stream, form, machines):
    written = stream()
    with log_to(written, Settings(log_format=form)):
        fields_logger("engine.x").info("it went", unit="u")

    assert written.getvalue().startswith("{") is machines
    assert "it went" in written.getvalue()


def test_a_writer_that_is_stuck_stops_nobody_and_what_is_lost_is_counted():
    import queue

    sender = Sender(queue.Queue(2))
    for n in range(5):
        sender.handle(logging.LogRecord("a", logging.INFO, "f", 1, "%d", (n,), None))

    assert sender.lost == 3


async def test_a_files_name_that_is_no_name_is_not_in_the_log(lines):
    head = f"--X\r\nContent-Disposition: form-data; name*={MARKER}\r\n\r\n{{}}\r\n--X--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=X"}
    with log_to(lines, settings()):
        async with simulation.engine(MODELS) as engine, serving(engine) as url, ClientSession(url) as http:
            async with http.post("/v1/files", data=head.encode(), headers=headers) as answer:
                assert answer.status == 400

    assert lines.read_all() and MARKER not in lines.getvalue()
