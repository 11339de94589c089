"""How well a passage answers a query: models that read both at once and give one number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import onnx, weights
from engine.adapters.forward.heads import sequence_logits
from engine.adapters.forward.packed import Ids, workspace_per_token
from engine.adapters.forward.similarity import scored
from engine.adapters.preparing.kinds import sigmoid
from engine.adapters.preparing.tokens import Piece, Room, TextTokenizer, max_tokens, prompted, text_of
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import Item, Options, Output, ScoreOptions, Task, Usage

BASE_BYTES = 16 << 20
"""What a forward pass takes whatever its size: GEMM buffers and small change."""


@dataclass(frozen=True, slots=True)
class ScoreJob:
    """One pair."""

    pair: Piece
    sigmoid: bool
    lora: str | None = None
    """The adapter that reads it."""


class PairPreparer:
    """Tokenises the query once and each passage once. Only passages are ever cut."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        config = weights.model_config(path)
        self._spec = spec
        self._tokenizer = TextTokenizer(path)
        self.cutter = self._tokenizer.cutter
        self._max_tokens = max_tokens(spec, config)
        self._vocabulary = int(config["vocab_size"])

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        assert isinstance(options, ScoreOptions), "the router sends score requests only"
        chances = sigmoid(self._spec, options)
        room = Room.of(self._spec, self._max_tokens, options.overflow)
        prompts = self._spec.prompts
        query = prompted(prompts, "query", options.instruction, text_of(options.query, None))
        texts: list[str | EngineError] = []
        for index, item in enumerate(items):
            try:
                texts.append(prompted(prompts, "document", None, text_of(item, index)))
            except EngineError as error:
                texts.append(error)
        good = [text for text in texts if isinstance(text, str)]
        asked, *passages = self._tokenizer.ids([room.clip(text) for text in (query, *good)])
        left = self._left(asked, query, room)
        found = iter(passages)
        return [
            text
            if isinstance(text, EngineError)
            else self._job(asked, next(found), text, room, left, index, chances)
            for index, text in enumerate(texts)
        ]

    def _left(self, asked: Ids, query: str, room: Room) -> int:
        """Tokens that the query leaves to a passage."""
        left = room.tokens - self._tokenizer.pair.length - len(asked)
        if left < 1 or len(room.clip(query)) < len(query):
            raise InputTooLong(
                f"the query is {len(asked)} tokens long and leaves no room for a passage; "
                f"the model takes {room.tokens} for both",
                length=len(asked),
                max_length=room.tokens,
            )
        return left

    def _job(
        self, asked: Ids, ids: Ids, text: str, room: Room, left: int, index: int, chances: bool
    ) -> Prepared | EngineError:
        try:
            ids, cut = room.fit(ids, text, left, index)
        except InputTooLong as error:
            return error
        pair = self._tokenizer.pair.fill(asked, ids)
        if int(pair.ids.max()) >= self._vocabulary:
            return InvalidInput(f"item {index} holds a token that the model does not have", item=index)
        usage = Usage(input_tokens=len(pair.ids), truncated=int(cut))
        job = ScoreJob(pair, chances)
        return Prepared(len(pair.ids), job, pair.ids.nbytes + pair.types.nbytes, usage)


class CrossEncoder:
    """Weights of an encoder with a head of one output."""

    def __init__(self, model: onnx.Network) -> None:
        self._model = model
        self._encoder = onnx.encoder(model)

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(ScoreJob, job.payload) for job in jobs]
        pairs = [payload.pair for payload in payloads]
        with torch.inference_mode():
            adapters = [payload.lora for payload in payloads]
            types = [pair.types for pair in pairs]
            hidden = self._encoder.hidden([pair.ids for pair in pairs], types, adapters=adapters)
            raw = sequence_logits(self._model, hidden)[:, 0].float().cpu()
        return scored(raw, [payload.sigmoid for payload in payloads])

    @property
    def network(self) -> onnx.Network:
        """What adapters change."""
        return self._model

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)


class CrossEncoderFamily:
    """Sequence classifiers of the transformers library with one output."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.SCORE])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        if spec.backend != "torch":
            return onnx.footprint(spec, path)
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        per_token = workspace_per_token(weights.model_config(path), dtype.itemsize)
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES, per_token)

    def preparer(self, spec: ModelSpec, path: Path) -> PairPreparer:
        return PairPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> CrossEncoder | onnx.Whole:
        if spec.backend != "torch":
            graph = onnx.load(spec, path, device, rank=2)
            _need_one_number(graph.config, path)
            return onnx.Whole(CrossEncoder(graph), graph)
        dtype = weights.dtype_on(device, spec.dtype, path)
        model = weights.load(
            AutoModelForSequenceClassification,
            path,
            device,
            dtype,
            trust_remote_code=spec.trust_remote_code,
        )
        _need_one_number(model.config, path)
        return CrossEncoder(model)


def _need_one_number(config: Any, path: Path) -> None:
    if config.num_labels != 1:
        raise weights.BadWeights(f"{path} gives {config.num_labels} numbers a pair; one is wanted")


FAMILY = CrossEncoderFamily()
