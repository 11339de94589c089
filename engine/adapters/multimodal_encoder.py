"""Texts, images, and texts with images, into vectors of one space: Qwen3-VL-Embedding.

arXiv 2601.04720. A cost of 1 is one token, of a text or of an image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, cast

from torch import Tensor
from torch.nn.functional import normalize

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.forward.similarity import scored
from engine.adapters.vision import reader
from engine.adapters.vision.messages import MessageJob, MessagePreparer
from engine.adapters.vision.reader import Reader, Vector
from engine.catalog import ModelSpec
from engine.errors import EngineError, NotFinite
from engine.requests import Output, OutputType, Task


class MultimodalEncoder:
    def __init__(self, network: Reader) -> None:
        self._network = network

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(MessageJob, job.payload) for job in jobs]
        made = self._network.vectors(part for payload in payloads for part in payload.parts)
        return [_answer(payload, [made[id(part)] for part in payload.parts]) for payload in payloads]

    def tensors(self) -> Mapping[str, Tensor]:
        return self._network.tensors()

    def unload(self) -> None:
        self._network.unload()


def _answer(job: MessageJob, vectors: Sequence[Vector]) -> Output | EngineError:
    rows = []
    for found in vectors:
        if isinstance(found, EngineError):
            return found
        rows.append(found)
    if len(rows) == 1:
        return job.wanted.encoded(rows[0].numpy())
    if not all(bool(row.isfinite().all()) for row in rows):
        return NotFinite()
    query, document = (normalize(row, dim=0) for row in rows)
    return scored((query @ document)[None], [job.sigmoid])[0]


class MultimodalEncoderFamily:
    """Models of transformers' Qwen3VL that were trained to embed; inputs: [text, image]."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.ENCODE, Task.SCORE])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        taken = reader.footprint(spec, path)
        made, said = weights.model_config(path)["text_config"]["hidden_size"], spec.dims.get(OutputType.DENSE)
        if said not in (None, made):
            raise weights.BadWeights(f"the entry says dims {{dense: {said}}}; the model makes {made}")
        return taken

    def preparer(self, spec: ModelSpec, path: Path) -> MessagePreparer:
        return MessagePreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> MultimodalEncoder:
        return MultimodalEncoder(reader.load(spec, path, device))


FAMILY = MultimodalEncoderFamily()
