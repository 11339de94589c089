"""Entities, relations, classes and structured data of any schema: GLiNER2 (arXiv 2507.18546), span models.

The schema stands in front of the text. Long texts are read in overlapping windows of whole words; what the
windows find is settled over the whole text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from transformers import MODEL_MAPPING

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.forward.packed import workspace_per_token
from engine.adapters.schemas.answers import answer
from engine.adapters.schemas.directory import Directory
from engine.adapters.schemas.jobs import WORDS, SchemaJob, SchemaPreparer
from engine.adapters.schemas.network import ROWS, Heads, Network
from engine.catalog import ModelSpec
from engine.errors import EngineError
from engine.requests import Output, Task

BASE_BYTES = 16 << 20
"""What a forward pass takes whatever its size: GEMM buffers and small change."""
ENCODER = "encoder."


class Gliner2:
    """A GLiNER2's weights."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(SchemaJob, job.payload) for job in jobs]
        return [answer(job, seen) for job, seen in zip(payloads, self._network.see(payloads), strict=True)]

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._network.module)

    def unload(self) -> None:
        weights.release(self._network.module)


class Gliner2Family:
    """GLiNER2 directories of the library `gliner2`, architecture span."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        directory = Directory(path)
        kind = weights.likely_device(spec.devices)
        dtype = weights.dtype_on(kind, spec.dtype, path)
        # of a word: its spans' inner values, four times as wide, as they are made and once more rectified
        row = 4 * directory.hidden * (2 * directory.widest + 6) * dtype.itemsize
        rows = max(ROWS.get(kind, ROWS["cpu"]), WORDS)
        per_token = workspace_per_token(directory.encoder.to_dict(), dtype.itemsize)
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES + rows * row, per_token)

    def preparer(self, spec: ModelSpec, path: Path) -> SchemaPreparer:
        return SchemaPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> Gliner2:
        directory = Directory(path)
        dtype = weights.dtype_on(device, spec.dtype, path)
        stored = weights.stored_tensors(path)
        state = weights.read(stored, dtype) if torch.device(device).type == "cpu" else weights.mapped(stored)
        own = {k.removeprefix(ENCODER): state.pop(k) for k in list(state) if k.startswith(ENCODER)}
        kind = cast(Any, MODEL_MAPPING)[type(directory.encoder)]
        without = frozenset(["pooler", "position_ids"])
        encoder = weights.given(kind, directory.encoder, own, dtype, without=without, where=str(path))
        heads = weights.skeleton(lambda: Heads(directory))
        cast_state = {name: tensor.to(dtype) for name, tensor in state.items()}
        if lacking := heads.load_state_dict(cast_state, strict=False, assign=True).missing_keys:
            raise weights.BadWeights(f"{path} lacks {len(lacking)} weights: {', '.join(lacking[:5])}")
        parts: Any = (encoder, heads)
        made = [part.to(device).eval().requires_grad_(False) for part in parts]
        return Gliner2(Network(directory, *made))


FAMILY = Gliner2Family()
