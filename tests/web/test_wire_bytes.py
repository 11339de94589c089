"""The literal bytes that the published client's own packer made, and what our encoders make."""

from __future__ import annotations

import msgpack
import msgpack_numpy
import numpy as np
import pytest

from engine.errors import StillLoading
from engine.requests import (
    Encoded,
    Entity,
    Extracted,
    Item,
    OutputType,
    Response,
    Scored,
    Sparse,
    Task,
    Timing,
    Usage,
)
from tests.web.fakes import spec
from web.errors import envelope
from web.wire import answers, bodies, pieces
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.msgpack import ENCODER
from web.wire.pieces import Answer

LIMITS = Limits(5000, 2 * 2**20)
M = spec("m", Task.ENCODE, outputs=["dense", "sparse"], dims={"dense": 2, "sparse": 30522})
ARRAYS = [
    np.float32([1.0, 0.5]),
    np.ones((2, 3), np.float16),
    np.ones((0, 4), np.float32),
    np.ones((3, 4)).T,
    np.array(5, "<i4"),
    np.array([True, False]),
    np.ones((2, 2), ">i8"),
    np.arange(6, dtype=np.uint8)[::2],
]


def packed(answer: Answer) -> bytes:
    return b"".join(pieces.of(answer, Form.MSGPACK))


def test_an_encode_answer_has_the_clients_own_bytes():
    timing = Timing(prepare=0.0002, queue=0.0001, run=0.0005, total=0.001)
    output = Encoded(dense=np.float32([1.0, 0.5]))
    response = Response("m", (output,), Usage(input_tokens=3), timing)

    said = packed(answers.encoded(M, [Item(id="a")], "float32", response))

    assert said.hex() == (
        "84a56d6f64656ca16da56974656d739182a26964a161a564656e736583a464696d7302a56474797065a7666c6f61743332"
        "a676616c75657385c4026e64c3c40474797065a33c6634c4046b696e64c400c40573686170659102c40464617461c4080000"
        "803f0000003fa674696d696e6785a8746f74616c5f6d73cb3ff0000000000000a871756575655f6d73cb3fb999999999999a"
        "af746f6b656e697a6174696f6e5f6d73cb3fc999999999999aac696e666572656e63655f6d73cb3fe0000000000000b1706f"
        "737470726f63657373696e675f6d73c0a5757361676581ac696e7075745f746f6b656e7303"
    )


def test_a_sparse_block_has_the_clients_own_bytes():
    sparse = Sparse(30522, np.array([5, 9], np.int32), np.array([1.5, 0.25], np.float32))
    response = Response("m", (Encoded(sparse=sparse),), Usage(), Timing())

    entry = next(iter(answers.encoded(M, [Item()], "float32", response).entries))

    assert ENCODER.encode(entry["sparse"]).hex() == (
        "84a464696d73cd773aa56474797065a7666c6f61743332a7696e646963657385c4026e64c3c40474797065a33c6934c404"
        "6b696e64c400c40573686170659102c40464617461c4080500000009000000a676616c75657385c4026e64c3c40474797065"
        "a33c6634c4046b696e64c400c40573686170659102c40464617461c4080000c03f0000803e"
    )


def test_a_score_answer_has_the_clients_own_bytes():
    response = Response("m", (Scored(0.1), Scored(0.9)), Usage(), Timing())

    said = packed(answers.scored([Item(), Item()], None, response))

    assert said.hex() == (
        "83a56d6f64656ca16da871756572795f6964c0a673636f7265739283a76974656d5f6964a66974656d2d31a573636f7265cb"
        "3feccccccccccccda472616e6b0083a76974656d5f6964a66974656d2d30a573636f7265cb3fb999999999999aa472616e6b"
        "01"
    )


def test_an_extract_answer_has_the_clients_own_bytes():
    found = Extracted((Entity("Tim", "person", 0.9, 0, 3),))
    response = Response("m", (found,), Usage(), Timing())

    said = packed(answers.extracted([Item(text="Tim")], response))

    assert said.hex() == (
        "82a56d6f64656ca16da56974656d739186a26964a66974656d2d30a8656e7469746965739186a474657874a354696da56c61"
        "62656ca6706572736f6ea573636f7265cb3feccccccccccccda5737461727400a3656e6403a462626f78c0a972656c617469"
        "6f6e7390af636c617373696669636174696f6e7390a76f626a6563747390a46461746180"
    )


def test_an_error_has_the_clients_own_bytes():
    said = envelope(StillLoading("loading"), "r")
    del said["detail"]["request_id"]

    assert ENCODER.encode(said).hex() == (
        "81a664657461696c82a4636f6465ad4d4f44454c5f4c4f4144494e47a76d657373616765a76c6f6164696e67"
    )
    assert pieces.whole(said, Form.JSON) == b'{"detail":{"code":"MODEL_LOADING","message":"loading"}}'


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_an_array_is_packed_as_msgpack_numpy_packs_it(array: np.ndarray):
    assert ENCODER.encode({"x": array}) == msgpack.packb({"x": array}, default=msgpack_numpy.encode)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65535, 65536])
def test_a_list_of_any_length_is_packed_as_msgpack_packs_it(count: int):
    answer = Answer({"model": "m"}, "items", count, ({"i": 1} for _ in range(count)), {"z": None})

    assert packed(answer) == msgpack.packb({"model": "m", "items": [{"i": 1}] * count, "z": None})


def test_the_smallest_encode_body_is_read():
    body = bytes.fromhex("81a56974656d739182a474657874a26869a26964a161")

    assert bodies.encode(body, Form.MSGPACK, LIMITS).items == (Item(id="a", text="hi"),)


def test_the_smallest_score_body_is_read():
    body = bytes.fromhex(
        "82a5717565727981a474657874a171a56974656d739281a474657874a16182a474657874a162a26964a17a"
    )

    asked = bodies.score(body, Form.MSGPACK, LIMITS)

    assert asked.items == (Item(text="a"), Item(id="z", text="b"))
    assert asked.options.query == Item(text="q")


def test_a_full_encode_body_is_read():
    params = {
        "output_types": ["dense", "sparse"],
        "instruction": "I",
        "output_dtype": "int8",
        "options": {"profile": "p", "is_query": True, "class": "interactive", "unheard_of": 1},
    }
    items = [{"text": "q", "images": [{"data": b"\xff\xd8", "format": "jpeg"}], "metadata": {"a": [1]}}]
    body = msgpack.packb({"items": items, "params": params, "unheard_of": {"x": [1]}})

    asked = bodies.encode(body, Form.MSGPACK, LIMITS)

    assert asked.profile == "p"
    assert asked.service_class.name == "INTERACTIVE"
    assert asked.items[0].images[0].data == b"\xff\xd8"
    assert asked.items[0].metadata == {"a": [1]}
    assert asked.options.output_types == (OutputType.DENSE, OutputType.SPARSE)
    assert (asked.options.instruction, asked.options.output_dtype, asked.options.is_query) == (
        "I",
        "int8",
        True,
    )
