"""Entities, relations, classes and structured data of any schema: GLiNER2 (arXiv 2507.18546) and 2.5.

The schema stands in front of the text. Long texts are read in overlapping windows of whole words; what the
windows find is settled over the whole text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from engine.adapters.family import Footprint
from engine.adapters.forward import weights
from engine.adapters.forward.packed import workspace_per_token
from engine.adapters.labelling.extractor import Extractor, encoder_and_rest
from engine.adapters.schemas import boundary, network
from engine.adapters.schemas.answers import answer
from engine.adapters.schemas.directory import BOUNDARY, Directory
from engine.adapters.schemas.jobs import WORDS, SchemaJob, SchemaPreparer
from engine.adapters.schemas.network import ROWS, Seen
from engine.catalog import ModelSpec
from engine.requests import Task

BASE_BYTES = 16 << 20
"""What a forward pass takes whatever its size: GEMM buffers and small change."""
ENCODER = "encoder."
LIKELY = 384 << 10
"""Bytes of likely spans to a word of the rows that are scored at once, at most fields."""


class Gliner2Family:
    """GLiNER2 directories of the library `gliner2`."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        directory = Directory(path)
        kind = weights.likely_device(spec.devices)
        dtype = weights.dtype_on(kind, spec.dtype, path)
        # of a word: its spans' inner values, four times as wide, as they are made and once more rectified
        row = 4 * directory.hidden * (2 * directory.widest + 6) * dtype.itemsize
        if directory.architecture == BOUNDARY:
            # of a word its two ends, four times as wide; and of each likely span what it is with each field
            row = 16 * directory.hidden * dtype.itemsize + LIKELY
        rows = max(ROWS.get(kind, ROWS["cpu"]), WORDS)
        per_token = workspace_per_token(directory.encoder.to_dict(), dtype.itemsize)
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES + rows * row, per_token)

    def preparer(self, spec: ModelSpec, path: Path) -> SchemaPreparer:
        return SchemaPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> Extractor[SchemaJob, list[Seen]]:
        directory = Directory(path)
        dtype = weights.dtype_on(device, spec.dtype, path)
        encoder, rest = encoder_and_rest(path, ENCODER, directory.encoder, dtype, device)
        module: Any = boundary if directory.architecture == BOUNDARY else network
        heads = module.heads(directory)
        if lacking := heads.load_state_dict(rest, strict=False, assign=True).missing_keys:
            raise weights.BadWeights(f"{path} lacks {len(lacking)} weights: {', '.join(lacking[:5])}")
        parts: Any = (encoder, heads)
        made = [part.to(device).eval().requires_grad_(False) for part in parts]
        return Extractor(module.Network(directory, *made), answer)


FAMILY = Gliner2Family()
