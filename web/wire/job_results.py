"""A job's results as the published native client decodes them: a msgpack list with a map an item. Pure.

An item's own result is msgpack inside that map, as its call answers an item; vectors are arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct

from engine.batches.kept import Batch
from engine.batches.lines import Result
from web.wire import msgpack

_BYTES = {"binary", "ubinary"}
_TIMES = {"inference_ms": "inference_ms", "queue_ms": "queue_ms", "tokenization_ms": "tokenization_ms"}


class _Answer(Struct):
    """The parts of any native answer."""

    items: list[dict[str, Any]] | None = None
    scores: list[dict[str, Any]] | None = None
    usage: dict[str, int] | None = None
    timing: dict[str, float | None] | None = None


class _Refusal(Struct):
    detail: dict[str, Any] = {}


def packed(batch: Batch, results: Iterable[tuple[int, bytes]]) -> bytes:
    """`results`: each line's number and what the batch's files say of it."""
    entries = [_entry(batch, number, line) for number, line in results]
    return msgspec.msgpack.encode(entries)


def _entry(batch: Batch, number: int, line: bytes) -> dict[str, Any]:
    result = msgspec.json.decode(line, type=Result)
    _, named, name = result.custom_id.partition(":")
    entry = {
        "work_item_id": f"{batch.id}.{number}",
        "request_id": result.id,
        "item_index": number,
        **({"id": name} if named else {}),
    }
    if result.response is None:
        wrong = result.error
        said = {"error": wrong.message, "error_code": wrong.code.upper()} if wrong else {}
        return {**entry, "success": False, "result_msgpack": None, **said}
    if result.response.status_code != 200:
        detail = msgspec.json.decode(result.response.body, type=_Refusal).detail
        told = {"error": detail.get("message"), "error_code": detail.get("code")}
        return {**entry, "success": False, "result_msgpack": None, **told}
    return {**entry, "success": True, **_good(result.response.body)}


def _good(body: Raw) -> dict[str, Any]:
    answer = msgspec.json.decode(body, type=_Answer)
    if answer.items is not None:
        value: object = _arrays(answer.items[0])
    elif answer.scores is not None:
        value = answer.scores
    else:
        value = msgspec.json.decode(body)
    times = {
        name: spent for name, spent in (answer.timing or {}).items() if name in _TIMES and spent is not None
    }
    return {"result_msgpack": msgpack.ENCODER.encode(value), "units": _units(answer.usage or {}), **times}


def _units(usage: Mapping[str, int]) -> dict[str, int]:
    """Generation has other names for its tokens."""
    names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
    return {names.get(name, name): count for name, count in usage.items() if name != "total_tokens"}


def _arrays(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item's vectors as arrays, which JSON has as lists."""
    return {name: _array(value) if _is_vector(value) else value for name, value in item.items()}


def _is_vector(value: object) -> bool:
    return isinstance(value, Mapping) and "dtype" in value and "values" in value


def _array(vector: Mapping[str, Any]) -> dict[str, Any]:
    values = np.asarray(vector["values"])
    dtype = str(vector["dtype"])
    if dtype in _BYTES:  # eight dimensions to a byte, whichever kind of byte
        dtype = "int8" if values.size and values.min() < 0 else "uint8"
    found = {**vector, "values": values.astype(dtype)}
    if "indices" in vector:
        found["indices"] = np.asarray(vector["indices"], np.int32)
    return found
