"""Texts into classes that the caller names, all of them judged in one pass: GLiClass (arXiv 2508.07662).

Only the text is ever cut; a text longer than one window is read in several where `overflow: window` says so,
and their chances are averaged by length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from gliclass import GLiClassModel  # type: ignore[import-untyped]
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from engine.adapters.classes.directory import Directory
from engine.adapters.classes.jobs import ClassesJob, ClassesPreparer
from engine.adapters.classes.networks import NETWORKS, Rows
from engine.adapters.family import Footprint
from engine.adapters.forward import weights
from engine.adapters.forward.packed import workspace_per_token
from engine.adapters.labelling.extractor import Extractor
from engine.adapters.zero_shot import classified
from engine.catalog import ModelSpec
from engine.errors import EngineError, NotFinite
from engine.requests import Extracted, Task

BASE_BYTES = 16 << 20
"""What a forward pass takes whatever its size: GEMM buffers and small change."""
SHARED = ".shared.weight"


def _answer(job: ClassesJob, logits: Sequence[NDArray[np.float32]]) -> Extracted | EngineError:
    rows = torch.from_numpy(np.stack(logits))
    if not torch.isfinite(rows).all():
        return NotFinite()
    chances = (rows.sigmoid() if job.multi_label else rows.softmax(-1)).numpy()
    row = np.average(chances, axis=0, weights=job.lengths).tolist()
    return Extracted(classifications=classified(job.wanted, row, job.multi_label))


def _tied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """With the embeddings that encoders and decoders share, stored once, under the names of both."""
    whole = dict(state)
    for name in [name for name in state if name.endswith(SHARED)]:
        for part in ("encoder", "decoder"):
            whole.setdefault(f"{name.removesuffix(SHARED)}.{part}.embed_tokens.weight", state[name])
    return whole


class GliClassFamily:
    """GLiClass directories of the library `gliclass`."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        per_token = workspace_per_token(Directory(path).encoder.to_dict(), dtype.itemsize)
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES, per_token)

    def preparer(self, spec: ModelSpec, path: Path) -> ClassesPreparer:
        return ClassesPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> Extractor[ClassesJob, Rows]:
        directory, dtype = Directory(path), weights.dtype_on(device, spec.dtype, path)
        stored = weights.stored_tensors(path)
        state = weights.read(stored, dtype) if torch.device(device).type == "cpu" else weights.mapped(stored)
        model: Any = weights.given(GLiClassModel, directory.config, _tied(state), dtype, where=str(path))
        ready = cast(PreTrainedModel, model.to(device).eval().requires_grad_(False))
        return Extractor(NETWORKS[directory.architecture](ready), _answer)


FAMILY = GliClassFamily()
