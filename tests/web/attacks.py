"""Values that a decoder should not trust: deep, huge, lying about their length, or nearly an array."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgpack

DEEP = 100_000
"""Levels."""


def json_values(size: int) -> Iterator[tuple[str, bytes]]:
    """Name and text of each; those that grow have about `size` bytes."""
    for name, one in (
        ("empty lists", b"[]"),
        ("empty maps", b"{}"),
        ("items", b'{"text":""}'),
        ("nulls", b"null"),
        ("empty texts", b'""'),
        ("zeros", b"0"),
        ("lists of one", b"[0]"),
    ):
        yield name, b"[" + b",".join([one] * (size // (len(one) + 1))) + b"]"
    lists = b"[],"
    yield "lists, then no Unicode", b"[" + lists * (size // 3) + b'"\\ud800"]'
    yield "maps, then no Unicode", b"[" + b"{}," * (size // 3) + b'"\\ud800"]'
    yield "numbers, then no UTF-8", b"[" + b"0," * (size // 2) + b'"\xff"]'
    yield "deep lists", b"[" * DEEP + b"]" * DEEP
    yield "deep maps", b'{"a":' * DEEP + b"1" + b"}" * DEEP
    yield "lists without an end", b"[" * DEEP
    yield "many keys", b"{" + b",".join(b'"%d":0' % n for n in range(size // 12)) + b"}"
    yield "equal keys", b"{" + b",".join([b'"text":"a"'] * (size // 12)) + b"}"
    yield "a long key", b'{"' + b"k" * size + b'":1}'
    yield "a long number", b"9" * size
    yield "a longer number than 64 bits", b"-" + b"9" * 400
    yield "a long fraction", b"1" + b"0" * 400 + b".5"
    yield "places in it", b'"' + b" - at `" * (size // 7) + b'"'
    yield "escapes", b'"' + b"\\u0041" * (size // 6) + b'"'
    yield "half a pair", b'"\\ud800"'
    yield "no UTF-8", b'"\xff\xfe"'
    for text in (
        b"1e999",
        b"NaN",
        b"-Infinity",
        b"true",
        b"null",
        b"0",
        b"-1",
        b'""',
        b"[]",
        b"{}",
        b"1e-999",
    ):
        yield text.decode(), text


def msgpack_values(size: int) -> Iterator[tuple[str, bytes]]:
    heads = {"list": b"\xdd", "map": b"\xdf", "bytes": b"\xc6", "text": b"\xdb", "extension": b"\xc9"}
    for name, head in heads.items():
        yield f"a {name} of 4 GiB, cut off", head + b"\xff" * 4 + b"\xc0" * 4
        yield f"a {name} of 4 GiB with some in it", head + b"\xff" * 4 + b"\xc0" * size
    for name, one in (
        ("empty lists", b"\x90"),
        ("empty maps", b"\x80"),
        ("items", b"\x81\xa4text\xa0"),
        ("items without images", b"\x81\xa6images\x90"),
        ("extensions", b"\xd4\x05\x00"),
        ("texts", b"\xa1\x90"),
    ):
        count = size // len(one)
        yield name, b"\xdd" + struct.pack(">I", count) + one * count
    images = size // 7
    yield "images", b"\x91\x81\xa6images\xdd" + struct.pack(">I", images) + b"\x81\xa4data\xc4\x00" * images
    yield "deep lists", b"\x91" * DEEP + b"\xc0"
    yield "deep maps", b"\x81\xa1a" * DEEP + b"\xc0"
    yield "deep keys", b"\x81" * DEEP + b"\xc0"
    yield "a time", b"\xd7\xff" + bytes(8)
    yield "a time that is none", b"\xc7\x0c\xff" + b"\xff" * 12
    for name, key in (("list", b"\x90"), ("map", b"\x80"), ("number", b"\x01"), ("null", b"\xc0")):
        yield f"a {name} as key", b"\x81" + key + b"\xc0"
    yield "not a number", b"\xcb\x7f\xf8" + bytes(6)
    yield "the largest number", b"\xcf" + b"\xff" * 8
    yield "no UTF-8", b"\xa2\xff\xfe"
    yield "no msgpack", b"\xc1"
    yield from _arrays()


def _arrays() -> Iterator[tuple[str, bytes]]:
    shapes = ([2**62, 4], [0, 2**40], [-1], [1.5], [True], "x", None, [1] * 9, [[1]], [2**31] * 3, [2])
    for shape in shapes:
        for kind in ("<f4", "|O", "<U4", "V8", "<c8", "[('a','<f4')]", "<f4,<f4", 5, b"<f4"):
            said = {b"nd": True, b"type": kind, b"kind": b"", b"shape": shape, b"data": bytes(8)}
            yield f"an array of {kind!r} {shape}", msgpack.packb(said)
    pickled = {b"nd": True, b"type": b"|O", b"kind": b"O", b"shape": [1], b"data": b"cos\nsystem\n."}
    yield "a pickle", msgpack.packb(pickled)


def placed(
    rest: Mapping[str, Any], path: str, value: bytes, pack: Callable[[Any], bytes], *, msgpacked: bool
) -> bytes:
    """The body `rest` with `value` at `path`, dots between the names."""
    first, _, inner = path.partition(".")
    if inner:
        there = rest.get(first)
        value = placed(there if isinstance(there, dict) else {}, inner, value, pack, msgpacked=msgpacked)
    pairs = [(pack(key), pack(each)) for key, each in rest.items() if key != first] + [(pack(first), value)]
    if msgpacked:
        return bytes([0x80 | len(pairs)]) + b"".join(key + each for key, each in pairs)
    return b"{" + b",".join(key + b":" + each for key, each in pairs) + b"}"
