"""How well a text, an image or both answer a query of either kind: Qwen3-VL-Reranker.

arXiv 2601.04720. Both are read at once, and the scores of "yes" and "no" as the next word are compared. A
cost of 1 is one token, of a text or of an image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, cast

import torch
from torch import Tensor

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.forward.similarity import scored
from engine.adapters.preparing.tokens import TextTokenizer
from engine.adapters.vision import reader
from engine.adapters.vision.questions import QuestionJob, QuestionPreparer
from engine.adapters.vision.reader import Reader
from engine.adapters.yes_no_reranker import one_token
from engine.catalog import ModelSpec
from engine.errors import EngineError
from engine.requests import Output, Task


class MultimodalReranker:
    def __init__(self, network: Reader, answer: Tensor) -> None:
        """`answer` (width,): the row of the output layer for yes, less that for no."""
        self._network = network
        self._answer = answer

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(QuestionJob, job.payload) for job in jobs]
        made = self._network.vectors(payload.message for payload in payloads)
        found: list[Output | EngineError] = []
        for payload in payloads:
            vector = made[id(payload.message)]
            if isinstance(vector, EngineError):
                found.append(vector)
                continue
            found.extend(scored((vector @ self._answer)[None], [payload.sigmoid]))
        return found

    def tensors(self) -> Mapping[str, Tensor]:
        return self._network.tensors()

    def unload(self) -> None:
        self._network.unload()


class MultimodalRerankerFamily:
    """Models of transformers' Qwen3VL that were trained to judge; inputs: [text, image]."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.SCORE])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        return reader.footprint(spec, path)

    def preparer(self, spec: ModelSpec, path: Path) -> QuestionPreparer:
        return QuestionPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> MultimodalReranker:
        yes, no = (_row(path, one_token(TextTokenizer(path), word)) for word in ("yes", "no"))
        return MultimodalReranker(reader.load(spec, path, device), yes - no)


def _row(path: Path, token: int) -> Tensor:
    """(width,) of the output layer, which may be the table of the input; float32, on the CPU."""
    found = weights.stored_tensors(path)
    ends = ("lm_head.weight", "embed_tokens.weight")
    named = next((name for end in ends for name in found if name.endswith(end)), None)
    if named is None:
        raise weights.BadWeights(f"{path} holds neither {ends[0]} nor {ends[1]}")
    every = found[named]
    start = every.start + token * every.shape[1] * every.dtype.itemsize
    row = replace(every, shape=(every.shape[1],), start=start)
    return weights.read({named: row}, torch.float32)[named]


FAMILY = MultimodalRerankerFamily()
