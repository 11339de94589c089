"""What half precision cannot hold is made once more alone in float32; what that cannot hold fails alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from engine import execution
from engine.adapters.family import Prepared
from engine.adapters.forward import weights
from engine.errors import EngineError, NotFinite
from engine.requests import Encoded, Output
from tests.simulation import device

LOUD = 7
"""A token for which the first layer passes float16's 65,504."""
NONSENSE = 8
"""One whose embedding is no number."""


class Encoder:
    """A small BERT as it comes, whose weights are held in `dtype`. A job is a list of token ids."""

    def __init__(self, dtype: torch.dtype, loudness: float) -> None:
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
        )
        model = BertModel(config, add_pooling_layer=False).eval().requires_grad_(False)
        first = model.encoder.layer[0]
        with torch.no_grad():
            model.embeddings.word_embeddings.weight[LOUD] = 0.0
            model.embeddings.word_embeddings.weight[LOUD, 0] = 1.0
            model.embeddings.word_embeddings.weight[NONSENSE] = float("nan")
            first.intermediate.dense.weight[0] = 0.0
            first.intermediate.dense.weight[0, 0] = loudness
        self._model = model.to(dtype)
        self.batches: list[int] = []

    def run(self, jobs: Sequence[Prepared]) -> list[Output | EngineError]:
        self.batches.append(len(jobs))
        return [self._one(job.payload) for job in jobs]

    def _one(self, ids: list[int]) -> Output | EngineError:
        with torch.inference_mode():
            states = self._model(torch.tensor([ids])).last_hidden_state
        vector = states.mean(1)[0].float().numpy()
        return Encoded(dense=vector) if np.isfinite(vector).all() else NotFinite()

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None: ...


def job(*ids: int) -> Prepared:
    return Prepared(len(ids), list(ids), 8)


JOBS = [job(3, 4, 5), job(LOUD, LOUD), job(9, 2)]
LOUDER = 30_000.0


def broken(outputs: Sequence[Output | EngineError]) -> list[int]:
    return [place for place, output in enumerate(outputs) if isinstance(output, NotFinite)]


def vectors(outputs: Sequence[Output | EngineError]) -> list[np.ndarray]:
    return [output.dense for output in outputs if isinstance(output, Encoded) and output.dense is not None]


def test_an_input_that_float16_cannot_hold_is_run_once_more_alone() -> None:
    model, whole = Encoder(torch.float16, LOUDER), Encoder(torch.float32, LOUDER)
    assert broken(model.run(JOBS)) == [1], "it was to overflow, or this shows nothing"
    model.batches.clear()

    outputs = execution.execute(model, JOBS, device()).outputs

    assert model.batches == [3, 1]
    assert broken(outputs) == []
    for mine, expected in zip(vectors(outputs), vectors(whole.run(JOBS)), strict=True):
        np.testing.assert_allclose(mine, expected, atol=0.02)


def test_what_float32_cannot_hold_either_fails_alone() -> None:
    model = Encoder(torch.bfloat16, 1.0)

    outputs = execution.execute(model, [job(3), job(NONSENSE), job(4)], device()).outputs

    assert model.batches == [3, 1]
    assert [type(output) for output in outputs] == [Encoded, NotFinite, Encoded]


def test_weights_of_float32_are_not_tried_twice() -> None:
    model = Encoder(torch.float32, float("inf"))

    outputs = execution.execute(model, JOBS, device()).outputs

    assert broken(outputs) == [0, 1, 2]
    assert model.batches == [3]
