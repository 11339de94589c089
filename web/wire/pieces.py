"""An answer as bytes, made in slices that each hold the interpreter for a few milliseconds only.

An answer is a map of one long list and little else; its entries are made while they are written.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from web.wire import msgpack
from web.wire.forms import Form

SLICE_BYTES = 2 * 2**20
SLICE_ENTRIES = 1024  # small ones take their time by their number
_JSON_BYTES_PER_NUMBER = 12  # of a float32 as orjson writes it, with its comma


@dataclass(frozen=True, slots=True)
class Answer:
    """`{**before, name: [entries], **after}`, in this order."""

    before: Mapping[str, Any]
    name: str
    count: int
    entries: Iterable[Mapping[str, Any]]
    after: Mapping[str, Any] = field(default_factory=dict)


def whole(value: Mapping[str, Any], form: Form) -> bytes:
    """A small map in one piece."""
    return json_bytes(value) if form is Form.JSON else msgpack.ENCODER.encode(value)


def of(answer: Answer, form: Form) -> Iterator[bytes]:
    """The answer in pieces of about `SLICE_BYTES`."""
    return _as_json(answer) if form is Form.JSON else _as_msgpack(answer)


def listed(entries: Iterable[Any], head: bytes = b"", rest: bytes = b"") -> Iterator[bytes]:
    """A JSON list of `entries` between `head` and `rest`, in pieces of about `SLICE_BYTES`."""
    piece = bytearray(head + b"[")
    for index, entry in enumerate(entries):
        piece += b"," if index else b""
        for part in _json_parts(entry):
            piece += part
            if len(piece) >= SLICE_BYTES:
                yield bytes(piece)
                piece.clear()
        if index % SLICE_ENTRIES == SLICE_ENTRIES - 1:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece + b"]" + rest)


def json_bytes(value: object) -> bytes:
    return orjson.dumps(value, default=_json_default, option=orjson.OPT_SERIALIZE_NUMPY)


def _json_default(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, np.ndarray):  # not contiguous, or of a dtype that orjson does not know
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _as_msgpack(answer: Answer) -> Iterator[bytes]:
    encoder = msgpack.ENCODER
    piece = bytearray(msgpack.map_head(len(answer.before) + 1 + len(answer.after)))
    for key, value in answer.before.items():
        piece += encoder.encode(key) + encoder.encode(value)
    piece += encoder.encode(answer.name) + msgpack.list_head(answer.count)
    for index, entry in enumerate(answer.entries, 1):
        encoder.encode_into(entry, piece, -1)
        if len(piece) >= SLICE_BYTES or index % SLICE_ENTRIES == 0:
            yield bytes(piece)
            piece.clear()
    for key, value in answer.after.items():
        piece += encoder.encode(key) + encoder.encode(value)
    yield bytes(piece)


def _as_json(answer: Answer) -> Iterator[bytes]:
    comma = b"," if answer.before else b""
    head = json_bytes(answer.before)[:-1] + comma + json_bytes(answer.name) + b":"
    rest = json_bytes(answer.after)[1:]
    yield from listed(answer.entries, head, (b"," if answer.after else b"") + rest)


def _json_parts(value: Any) -> Iterator[bytes]:
    """A value whole when it is small; else its parts, and of a large array a few rows at a time."""
    if _json_size(value) <= SLICE_BYTES:
        yield json_bytes(value)
        return
    if isinstance(value, np.ndarray) and value.ndim:
        step = max(1, len(value) * SLICE_BYTES // _json_size(value))
        runs = [value[at : at + step] for at in range(0, len(value), step)]
        for index, run in enumerate(runs):
            parts = [json_bytes(run)[1:-1]] if step > 1 or value.ndim == 1 else _json_parts(run[0])
            yield b"," if index else b"["
            yield from parts
        yield b"]"
        return
    if isinstance(value, Mapping):
        for index, (key, each) in enumerate(value.items()):
            yield (b"," if index else b"{") + json_bytes(key) + b":"
            yield from _json_parts(each)
        yield b"}"
        return
    yield json_bytes(value)


def _json_size(value: Any) -> int:
    """Roughly the bytes of its arrays; what else is in an entry is small."""
    if isinstance(value, np.ndarray):
        return value.size * _JSON_BYTES_PER_NUMBER
    if isinstance(value, Mapping):
        return sum(_json_size(each) for each in value.values())
    return 0
