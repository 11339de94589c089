"""Headers of safetensors files: which tensors there are, of what kind, and where their bytes lie."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
MAX_HEADER_BYTES = 100_000_000


class BadWeights(ValueError):
    """A model directory whose weights cannot be used as they are."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor in a file: its bytes are [start, start + nbytes)."""

    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def nbytes(self, dtype: torch.dtype | None = None) -> int:
        """Bytes in memory when floating values are held in `dtype`; as stored when it is None."""
        held = dtype if dtype is not None and self.dtype.is_floating_point else self.dtype
        return self.numel * held.itemsize


def files(path: Path) -> list[Path]:
    """The safetensors files of a model directory. Raises BadWeights."""
    whole, index = path / "model.safetensors", path / "model.safetensors.index.json"
    if whole.is_file():
        return [whole]
    if not index.is_file():
        raise BadWeights(f"{path} holds no model.safetensors; pickles are not read. Save it as safetensors")
    names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    if any(Path(name).name != name for name in names):
        raise BadWeights(f"{index} names files outside its directory")
    return [path / name for name in names]


def stored_in(file: Path) -> dict[str, Stored]:
    """What one safetensors file holds, by name, in the order of its bytes.

    Format: length of the header (u64), header (JSON), bytes of the tensors. Raises BadWeights.
    """
    size = file.stat().st_size
    with open(file, "rb") as source:
        (length,) = struct.unpack("<Q", source.read(8).ljust(8, b"\0"))
        if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise BadWeights(f"{file} is no safetensors file")
        header = source.read(length)
    try:
        entries = {name: entry for name, entry in json.loads(header).items() if name != "__metadata__"}
        ordered = sorted(entries.items(), key=lambda pair: tuple(pair[1]["data_offsets"]))
        return {name: _stored(file, 8 + length, size, name, entry) for name, entry in ordered}
    except BadWeights:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise BadWeights(f"{file} has a header that cannot be read: {error}") from error


def _stored(file: Path, data: int, size: int, name: str, entry: dict[str, Any]) -> Stored:
    """`data` is where the header ends; offsets count from there."""
    if entry["dtype"] not in DTYPES:
        raise BadWeights(f"{file}: {name} is stored as {entry['dtype']}, which is not supported")
    begin, end = entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (begin, end, *entry["shape"])):
        raise BadWeights(f"{file}: {name} has a shape or a place that is no whole number from 0 on")
    stored = Stored(file, DTYPES[entry["dtype"]], tuple(entry["shape"]), data + begin)
    if end - begin != stored.nbytes() or data + end > size:
        raise BadWeights(f"{file}: the bytes of {name} are not where its header says")
    return stored
