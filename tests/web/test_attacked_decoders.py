"""Whatever a body holds, and wherever: it is read or refused in words, in little memory, by every route's
reader."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import msgpack
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import BodyTooLarge, InputTooLong, InvalidInput
from tests.fresh import in_a_fresh_process
from tests.web.attacks import json_values, msgpack_values, placed
from web.wire import bodies, counted, estimate, rerank
from web.wire.bodies import Asked
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.openai import chat, completions, embeddings, responses
from web.wire.tei import bodies as tei

LIMITS = Limits(5000, 2**21)
REFUSED = (InvalidInput, InputTooLong, BodyTooLarge)
LONGEST = 3000
"""Characters of a complaint: what was sent is not sent back."""
ITEM = {"items": [{"text": "a"}]}
SAID = {"model": "m", "messages": [{"role": "user", "content": "a"}]}

Reader = Callable[[bytes, Form, Limits], Asked]
READERS: Mapping[str, tuple[Reader, dict[str, Any], str]] = {
    # reader, a good body, and where in it something else is put
    "encode": (bodies.encode, ITEM, "items params.options params.output_types zzz"),
    "score": (bodies.score, {**ITEM, "query": {"text": "q"}}, "items query options query.metadata"),
    "extract": (bodies.extract, ITEM, "items params.labels params.output_schema params.options"),
    "estimate": (
        estimate.read,
        {"task": "encode", "model": "m", **ITEM},
        "items task request params.options",
    ),
    "generate": (
        bodies.generate,
        {"prompt": "a"},
        "prompt stop logit_bias grammar.json_schema grammar.regex images options seed max_new_tokens zzz",
    ),
    "rerank": (
        rerank.read,
        {"model": "m", "query": "q", "documents": ["a"]},
        "documents query rank_fields top_n",
    ),
    "chat": (
        chat.read,
        SAID,
        "messages tools tool_choice response_format.json_schema.schema stop logit_bias functions max_tokens",
    ),
    "completions": (completions.read, {"model": "m", "prompt": "a"}, "prompt stop logit_bias seed"),
    "responses": (responses.read, {"model": "m", "input": "a"}, "input tools text instructions"),
    "embeddings": (embeddings.read, {"model": "m", "input": "a"}, "input dimensions encoding_format"),
    "embed": (tei.embed, {"inputs": "a"}, "inputs encoding_format prompt_name"),
    "embed_sparse": (tei.embed_sparse, {"inputs": "a"}, "inputs"),
    "tei rerank": (tei.rerank, {"query": "q", "texts": ["a"]}, "texts query"),
    "predict": (tei.predict, {"inputs": "a"}, "inputs"),
    "tokenize": (tei.tokenize, {"inputs": "a"}, "inputs"),
    "decode": (tei.detokenize, {"ids": [1]}, "ids"),
}
PACKED = ("encode", "score", "extract", "estimate")
"""Those that take msgpack too."""


def read(reader: Reader, body: bytes, form: Form) -> Asked | None:
    """What is asked for; None when it is refused, in words that are short."""
    try:
        return reader(body, form, LIMITS)
    except REFUSED as error:
        said = error.message
    assert 0 < len(said) < LONGEST, said[:200]
    return None


def in_json(name: str, path: str, value: bytes) -> bytes:
    return placed(READERS[name][1], path, value, orjson.dumps, msgpacked=False)


def in_msgpack(name: str, path: str, value: bytes) -> bytes:
    return placed(READERS[name][1], path, value, msgpack.packb, msgpacked=True)


@pytest.mark.parametrize("name", READERS)
def test_every_value_in_every_place_is_read_or_refused(name: str) -> None:
    reader, good, paths = READERS[name]
    assert read(reader, orjson.dumps(good), Form.JSON) is not None
    for path in paths.split():
        for _, value in json_values(3000):
            read(reader, in_json(name, path, value), Form.JSON)
        for _, value in msgpack_values(3000) if name in PACKED else ():
            read(reader, in_msgpack(name, path, value), Form.MSGPACK)


@pytest.mark.parametrize("field", ["metadata", "multivector"])
def test_what_an_item_carries_along_is_read_or_refused(field: str) -> None:
    for _, value in json_values(3000):
        read(bodies.encode, b'{"items":[{"text":"a","%s":%s}]}' % (field.encode(), value), Form.JSON)
    for name, value in msgpack_values(3000):
        item = b"\x82" + msgpack.packb("text") + msgpack.packb("a") + msgpack.packb(field) + value
        asked = read(bodies.encode, b"\x81" + msgpack.packb("items") + b"\x91" + item, Form.MSGPACK)
        assert asked is None or not any(word in name for word in ("|O", "pickle", "<U4", "V8", "2**31"))


@given(st.sampled_from(PACKED), st.data())
def test_a_body_that_is_cut_off_is_refused(name: str, data: st.DataObject) -> None:
    reader, good, _ = READERS[name]
    for form, packed in ((Form.JSON, orjson.dumps(good)), (Form.MSGPACK, msgpack.packb(good))):
        cut = data.draw(st.integers(0, len(packed) - 1))
        assert read(reader, packed[:cut], form) is None


def test_the_last_of_equal_keys_counts() -> None:
    twice = b'{"items":[{"text":"a"}],"items":[{"text":"b","text":"c"}]}'
    packed = b"\x82" + 2 * (msgpack.packb("items") + msgpack.packb([{"text": "c"}]))

    for body, form in ((twice, Form.JSON), (packed, Form.MSGPACK)):
        asked = read(bodies.encode, body, form)
        assert asked is not None and [item.text for item in asked.items] == ["c"]


SIZE = 2**20
TIMES, AND = 16, 8 * 2**20
"""A body may take so many times its bytes while it is read, and so many bytes more."""

COSTLY = (
    # what took most before it was counted or cut, and where
    ("score", "query.metadata", Form.MSGPACK, "empty maps"),
    ("score", "query.metadata", Form.MSGPACK, "texts"),
    ("score", "query.metadata", Form.JSON, "empty lists"),
    ("score", "query.multivector", Form.MSGPACK, "empty lists"),
    ("extract", "params.options", Form.JSON, "lists of one"),
    ("encode", "items", Form.MSGPACK, "images"),
    ("encode", "items", Form.JSON, "items"),
    ("estimate", "items", Form.MSGPACK, "a list of 4 GiB with some in it"),
    ("estimate", "items", Form.MSGPACK, "a map of 4 GiB with some in it"),
    ("estimate", "zzz", Form.JSON, "lists, then no Unicode"),
    ("estimate", "items", Form.JSON, "numbers, then no UTF-8"),
    ("generate", "zzz", Form.JSON, "maps, then no Unicode"),
)


def _memory_is_bounded() -> None:
    values = {Form.JSON: dict(json_values(SIZE)), Form.MSGPACK: dict(msgpack_values(SIZE))}
    tracemalloc.start()
    for name, path, form, said in COSTLY:
        body = (in_json if form is Form.JSON else in_msgpack)(name, path, values[form][said])
        assert len(body) > SIZE // 2
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        read(READERS[name][0], body, form)
        taken = tracemalloc.get_traced_memory()[1] - before
        assert taken <= TIMES * len(body) + AND, (name, path, form, said, taken / len(body))


def test_a_body_takes_a_small_multiple_of_its_bytes_while_it_is_read() -> None:
    in_a_fresh_process(_memory_is_bounded)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=300)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20)),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=3), inner, max_size=20),
    max_leaves=40,
)


def _held(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, list | dict) + sum(map(_held, inner))


@given(plain)
@settings(max_examples=40)
def test_lists_and_maps_are_counted_before_they_are_built(value: Any) -> None:
    """Binary data that looks like nothing else is looked at one by one."""
    noise = bytes(range(0x80, 0xA0)) * (counted.MOST // 31)
    packed = msgpack.packb([noise, value])

    assert counted.containers(packed, Form.MSGPACK) == 1 + _held(value)
    assert counted.containers(msgpack.packb(value), Form.MSGPACK) >= _held(value)


def test_brackets_in_texts_are_no_lists() -> None:
    code = "if (a[0] == '\\\\') { b = \"{\" }" * 25_000
    metadata = {"a": code, 'quoted "[" {': [{}, "\\", "[", '"{']}
    asked = read(bodies.encode, orjson.dumps({"items": [{"text": "a", "metadata": metadata}]}), Form.JSON)

    assert code.count("{") + code.count("[") > counted.MOST
    assert asked is not None and asked.items[0].metadata == metadata
    assert counted.containers(orjson.dumps(metadata), Form.JSON) == 3
