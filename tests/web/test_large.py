"""Large bodies and answers: served, and the loop stays free for others meanwhile."""

from __future__ import annotations

import gc
import io
import json
import os
import time
from contextlib import asynccontextmanager
from unittest import mock

import anyio
import numpy as np
import pytest
from aiohttp import StreamReader
from aiohttp.test_utils import make_mocked_request

from engine.requests import Encoded, EncodeOptions, Item, Response, Usage
from tests.web.fakes import TIMING
from web.intake import DENSE, LARGE_BYTES, Intake
from web.wire import pieces
from web.wire.bodies import Asked
from web.wire.decoding import Body
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.pieces import SLICE_BYTES, Answer

pytestmark = [pytest.mark.anyio, pytest.mark.alone]

ENCODE = "/v1/encode/fake/encoder"
JSON = {"Content-Type": "application/json", "Accept": "application/json"}


class Watchdog:
    """Sleeps a little again and again; `longest` is the most that this thread worked meanwhile.

    Seconds of work, not of the clock: the machine may have other things to do.
    """

    longest = 0.0

    async def run(self) -> None:
        while True:
            began = time.thread_time()
            await anyio.sleep(0.001)
            self.longest = max(self.longest, time.thread_time() - began)


@asynccontextmanager
async def watched():
    """As in a server: what lives for ever is not looked through by every collection of garbage."""
    watchdog = Watchdog()
    gc.collect()
    gc.freeze()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watchdog.run)
        yield watchdog
        tasks.cancel_scope.cancel()
    gc.unfreeze()


async def post(http, body: bytes) -> tuple[int, bytes]:
    async with http.post(ENCODE, data=io.BytesIO(body), headers=JSON) as response:
        return response.status, b"".join([chunk async for chunk in response.content.iter_any()])


async def test_a_json_body_of_30_mb_does_not_hold_the_loop(http, engine):
    items = [{"id": str(i), "text": f"{i}" + "ü\n" * 800} for i in range(5000)]
    body = json.dumps({"items": items}).encode()
    assert len(body) > 30_000_000
    engine.answer = lambda request: Response(
        request.model, (Encoded(dense=np.zeros(1, np.float32)),) * 5000, Usage(), TIMING
    )

    async with watched() as watchdog:
        status, said = await post(http, body)

    assert status == 200
    assert engine.requests[-1].items[4999].text == items[4999]["text"]
    assert json.loads(said)["items"][4999]["id"] == "4999"
    assert watchdog.longest < 0.1


def where(body: Body, form: Form, limits: Limits) -> Asked:
    """A reader that says in which process it ran."""
    return Asked((Item(text=str(os.getpid())),), EncodeOptions())


@pytest.mark.parametrize(
    ("body", "form", "elsewhere"),
    [
        (b"{" + b" " * LARGE_BYTES, Form.JSON, True),
        (b"{" * (DENSE + 1), Form.JSON, True),
        (b"{" * DENSE + b" " * 1_000_000, Form.JSON, False),
        (b"[" * (DENSE + 1), Form.JSON, True),
        (b"\xdd\x00\x02\x00\x00" + b"\x80" * 2**17, Form.MSGPACK, True),
        (b"\xc6\x00\x02\x00\x00" + b"\x80" * 2**17, Form.MSGPACK, False),
        (b"{" + b" " * LARGE_BYTES, Form.MSGPACK, False),
    ],
    ids=["long", "dense", "neither", "lists", "maps of msgpack", "bytes of msgpack", "msgpack"],
)
async def test_only_what_takes_long_is_read_in_another_process(body, form, elsewhere):
    payload = StreamReader(mock.Mock(_reading_paused=False), 2**16)
    payload.feed_data(body)
    payload.feed_eof()
    request = make_mocked_request("POST", "/", {"Content-Type": form}, payload=payload)

    asked = await Intake(2**25, Limits(1, 1)).asked(request, where)

    assert (asked.items[0].text != str(os.getpid())) == elsewhere


async def test_what_a_child_finds_wrong_is_the_same_typed_error(http):
    body = json.dumps({"items": [{"text": "a"}, {"text": 3}]}).encode() + b" " * 9_000_000
    status, said = await post(http, body)

    assert (status, json.loads(said)["detail"]["code"]) == (400, "INVALID_INPUT")
    assert json.loads(said)["detail"]["item"] == 1


async def test_a_small_body_of_countless_maps_does_not_hold_the_loop(http):
    body = b'{"items":[' + b",".join([b"{}"] * 1_000_000) + b"]}"

    async with watched() as watchdog:
        status, said = await post(http, body)

    assert status == 400
    assert b"list of length" in said
    assert watchdog.longest < 0.1  # parsed on the loop it is 0.15


async def test_a_large_answer_in_json_does_not_hold_the_loop(http, engine):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((5000, 384)).astype(np.float32)
    engine.answer = lambda request: Response(
        request.model, tuple(Encoded(dense=row) for row in rows), Usage(), TIMING
    )
    body = json.dumps({"items": [{"text": "a"}] * 5000}).encode()

    async with watched() as watchdog:
        status, said = await post(http, body)

    assert status == 200
    values = [item["dense"]["values"] for item in json.loads(said)["items"]]
    np.testing.assert_array_equal(np.asarray(values, np.float32), rows)
    assert watchdog.longest < 0.1  # made at once it is 0.15


@pytest.mark.parametrize("form", Form)
def test_no_slice_of_an_answer_is_much_larger_than_it_should_be(form: Form):
    rng = np.random.default_rng(0)
    tall = rng.standard_normal((100_000, 8)).astype(np.float32)
    wide = rng.standard_normal((2, 400_000)).astype(np.float32)
    entries = [{"id": "a", "tall": {"values": tall}, "wide": wide, "x": 1}, {"flat": wide[0]}, {}]

    made = list(pieces.of(Answer({"model": "m"}, "items", 3, entries), form))

    if form is Form.JSON:
        assert max(map(len, made)) < 2.5 * SLICE_BYTES
        read = json.loads(b"".join(made))["items"]
        np.testing.assert_array_equal(np.asarray(read[0]["tall"]["values"], np.float32), tall)
        np.testing.assert_array_equal(np.asarray(read[0]["wide"], np.float32), wide)
        np.testing.assert_array_equal(np.asarray(read[1]["flat"], np.float32), wide[0])
        assert (read[0]["x"], read[2]) == (1, {})
    assert len(made) > 1


async def test_an_answer_that_cannot_be_written_is_still_a_typed_error(http, engine):
    """Also when it is in the last of many slices: nothing has been sent by then."""
    many = [Encoded(dense=np.zeros(384, np.float32))] * 4999
    strange = Encoded(dense=np.array([object()]))
    engine.answer = lambda request: Response(request.model, (*many, strange), Usage(), TIMING)
    body = json.dumps({"items": [{"text": "a"}] * 5000}).encode()

    async with http.post(ENCODE, data=body, headers={"Content-Type": "application/json"}) as response:
        said = await response.json()

    assert (response.status, said["detail"]["code"]) == (500, "INTERNAL_ERROR")
