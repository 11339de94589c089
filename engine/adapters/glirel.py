"""Relations of any name between entities that are given: GLiREL (arXiv 2501.03172).

Entities come with each item, as `metadata.entities`. Long texts are read in overlapping windows of whole
words; a pair is judged in every window that sees both, and the surest counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from engine.adapters.family import Footprint
from engine.adapters.forward import weights
from engine.adapters.forward.packed import workspace_per_token
from engine.adapters.labelling.extractor import Extractor, encoder_and_rest
from engine.adapters.relations.directory import ENCODER, Directory
from engine.adapters.relations.jobs import RelationsJob, RelationsPreparer
from engine.adapters.relations.network import PAIRS, Layers, Network
from engine.catalog import ModelSpec
from engine.errors import NotFinite
from engine.requests import Extracted, Relation, Task

BASE_BYTES = 16 << 20
"""What a forward pass takes whatever its size: GEMM buffers and small change."""
Chances = list[NDArray[np.float32]]
"""Of the pairs of each window, by relation."""


def _answer(job: RelationsJob, windows: Sequence[NDArray[np.float32]]) -> Extracted | NotFinite:
    """Relations, surest first; `data.relations` says by their places in the list which entities they join."""
    if not all(np.isfinite(chances).all() for chances in windows):
        return NotFinite()
    best: dict[tuple[int, int, str], float] = {}
    for window, chances in zip(job.windows, windows, strict=True):
        for pair, label in np.argwhere(chances > np.asarray(job.wanted.thresholds, np.float32)).tolist():
            head, tail = (window.entities[row] for row in window.pairs[pair].tolist())
            key = (head, tail, job.wanted.names[label])
            best[key] = max(best.get(key, 0.0), float(chances[pair, label]))
    ranked = sorted(best.items(), key=lambda entry: -entry[1])
    return Extracted(
        entities=job.entities,
        relations=tuple(
            Relation(job.entities[head].text, job.entities[tail].text, name, score)
            for (head, tail, name), score in ranked
        ),
        data={
            "relations": [
                {"head": head, "tail": tail, "relation": name, "score": score}
                for (head, tail, name), score in ranked
            ]
        },
    )


class GlirelFamily:
    """GLiREL directories: glirel_config.json, model.safetensors, and the encoder that they name."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        directory = Directory(path)
        kind = weights.likely_device(spec.devices)
        dtype = weights.dtype_on(kind, spec.dtype, path)
        # of a pair: both ends, and inner values four times as wide, as they are made and once more rectified
        base = BASE_BYTES + PAIRS.get(kind, PAIRS["cpu"]) * 16 * directory.shape.hidden * dtype.itemsize
        per_token = workspace_per_token(directory.encoder.to_dict(), dtype.itemsize)
        return Footprint(weights.weights_bytes(path, dtype), base, per_token)

    def preparer(self, spec: ModelSpec, path: Path) -> RelationsPreparer:
        return RelationsPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> Extractor[RelationsJob, Chances]:
        directory = Directory(path)
        dtype = weights.dtype_on(device, spec.dtype, path)
        encoder, rest = encoder_and_rest(path, ENCODER, directory.encoder, dtype, device)
        layers = Layers(rest, directory.shape.hidden)
        made: Any = [part.to(device).eval().requires_grad_(False) for part in cast(Any, (encoder, layers))]
        return Extractor(Network(directory, *made), _answer)


FAMILY = GlirelFamily()
