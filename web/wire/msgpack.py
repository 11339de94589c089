"""Numpy arrays inside msgpack, as `msgpack_numpy` writes them, and nothing of it that could do harm.

An array is a map of five binary keys. Object and structured arrays, which that library would unpickle,
are refused here, and so is every size that does not add up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

DTYPES = frozenset(
    [f"{order}{kind}" for order in "<>" for kind in ("f2", "f4", "f8", "i2", "i4", "i8", "u2", "u4", "u8")]
    + ["|b1", "|i1", "|u1"]
)
MAX_DIMENSIONS = 8


class Malformed(ValueError):
    """A map that says it is an array and is not one that we take."""


def _default(value: object) -> object:
    if isinstance(value, np.ndarray):
        return _packed(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in msgpack")


def _packed(array: NDArray[Any]) -> dict[bytes, object]:
    """The array's five keys. Its data is read where it lies."""
    if array.dtype.str not in DTYPES:
        raise TypeError(f"an array of {array.dtype} has no form on the wire")
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return {b"nd": True, b"type": array.dtype.str, b"kind": b"", b"shape": array.shape, b"data": data}


ENCODER = msgspec.msgpack.Encoder(enc_hook=_default)


def map_head(count: int) -> bytes:
    """What comes before `count` keys and values, at most 15."""
    return bytes([0x80 | count])


def list_head(count: int) -> bytes:
    """What comes before `count` entries, in the shortest form, as packers write it."""
    if count < 16:
        return bytes([0x90 | count])
    return b"\xdc" + count.to_bytes(2) if count < 2**16 else b"\xdd" + count.to_bytes(4)


def array(fields: Mapping[object, object]) -> NDArray[Any]:
    """The array that a decoded map with the key `nd` stands for: a view of its bytes, never a copy."""
    if fields.get(b"nd") is not True or fields.get(b"kind", b"") not in (b"", ""):
        raise Malformed("only plain numeric arrays are taken, no object, structured or complex ones")
    kind, shape, data = fields.get(b"type"), fields.get(b"shape"), fields.get(b"data")
    if not isinstance(kind, str) or kind not in DTYPES:
        raise Malformed(f"an array's dtype is one of {' '.join(sorted(DTYPES))}")
    if not isinstance(shape, list | tuple) or len(shape) > MAX_DIMENSIONS:
        raise Malformed(f"an array's shape is a list of at most {MAX_DIMENSIONS} sizes")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise Malformed("an array's sizes are whole numbers from 0")
    dtype = np.dtype(kind)
    if not isinstance(data, bytes) or len(data) != math.prod(shape) * dtype.itemsize:
        raise Malformed("an array's data does not have the size that its shape and dtype give")
    return np.frombuffer(data, dtype).reshape(shape)
