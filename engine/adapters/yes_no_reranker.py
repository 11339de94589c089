"""How well a passage answers a query, asked of a language model: how likely its next word is "yes".

Qwen3-Reranker (arXiv 2506.05176) compares the scores of "yes" and "no", mxbai-rerank-v2 those of "1" and
"0"; bge-reranker-v2-gemma has the score of "Yes" alone. What sentence-transformers' LogitScore does. One
forward, no generation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.forward.packed import PACKED, Encoder, Ids, workspace_per_token
from engine.adapters.forward.pooling import pool
from engine.adapters.forward.similarity import scored
from engine.adapters.preparing.kinds import sigmoid
from engine.adapters.preparing.questions import INSTRUCTION, Asked, asked, template
from engine.adapters.preparing.tokens import Room, TextTokenizer, max_tokens, text_of
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import Item, Options, Output, ScoreOptions, Task, Usage

BASE_BYTES = 16 << 20
"""What a forward pass takes whatever its size: GEMM buffers and small change."""
QWEN3 = (
    "<|im_start|>system\n"
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
    "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
"""As the model card of Qwen3-Reranker has it."""
NOTHING = np.zeros(0, np.int32)
QWEN3_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


@dataclass(frozen=True, slots=True)
class Answers:
    """Token ids of the words that are compared; without `no` the score of `yes` is the answer."""

    yes: int
    no: int | None


@dataclass(frozen=True, slots=True)
class YesNoJob:
    ids: Ids
    sigmoid: bool
    lora: str | None = None
    """The adapter that reads it."""


class YesNoPreparer:
    """Fills in the template. Only passages are ever cut."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        config = weights.model_config(path)
        self._spec = spec
        self._tokenizer = TextTokenizer(path)
        self.cutter = self._tokenizer.cutter
        self._max_tokens = max_tokens(spec, config)
        self._vocabulary = int(config["vocab_size"])
        self._instruction = str(spec.prompts.get("instruction", QWEN3_INSTRUCTION))
        written, instructed = spec.options.get("template", QWEN3), spec.options.get("instruction")
        self._template = template(written, instructed or INSTRUCTION)
        self._after = np.concatenate([NOTHING, *self._tokenizer.ids(self._template.after)])
        self._first = self._tokenizer.single.around[0].ids

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        assert isinstance(options, ScoreOptions), "the router sends score requests only"
        chances = sigmoid(self._spec, options)
        room = Room.of(self._spec, self._max_tokens, options.overflow)
        instruction = self._instruction if options.instruction is None else options.instruction
        query, left = text_of(options.query, None), self._left(room)
        head = asked(self._template, query, instruction, self._tokenizer, room, left)
        found: list[Prepared | EngineError] = []
        texts: list[tuple[int, str]] = []
        for index, item in enumerate(items):
            try:
                texts.append((index, text_of(item, index)))
                found.append(InvalidInput())
            except EngineError as error:
                found.append(error)
        # with the lead each time: what stands at the seam may be one token with what comes before it
        every = self._tokenizer.ids([room.clip(head.lead + text) for _, text in texts])
        for (index, text), ids in zip(texts, every, strict=True):
            found[index] = self._job(head, ids, head.lead + text, room, index, chances)
        return found

    def _left(self, room: Room) -> int:
        """Tokens for the query, the passage and what stands before them."""
        return room.tokens - len(self._first) - len(self._after)

    def _job(
        self, head: Asked, ids: Ids, text: str, room: Room, index: int, sigmoid: bool
    ) -> Prepared | EngineError:
        try:
            ids, cut = room.fit(ids, text, self._left(room) - len(head.before), index)
        except InputTooLong as error:
            return error
        whole = np.concatenate([self._first, head.before, ids, self._after])
        if int(whole.max()) >= self._vocabulary:
            return InvalidInput(f"item {index} holds a token that the model does not have", item=index)
        usage = Usage(input_tokens=len(whole), truncated=int(cut))
        return Prepared(len(whole), YesNoJob(whole, sigmoid), whole.nbytes, usage)


class YesNoReranker:
    """Weights of a decoder, and the rows of its output layer that are compared."""

    only_deep: ClassVar[bool] = True
    """Adapters that change the output layer are refused: its rows are kept apart from it."""

    def __init__(self, model: PreTrainedModel, answers: Answers) -> None:
        self._model = model
        self._encoder = Encoder(cast(PreTrainedModel, model.base_model))
        head = cast(Any, model.get_output_embeddings())
        rows = [answers.yes] if answers.no is None else [answers.yes, answers.no]
        self._rows: Tensor | None = head.weight.detach()[rows].clone()
        bias = getattr(head, "bias", None)
        self._bias: Tensor | None = None if bias is None else bias.detach()[rows].clone()
        self._softcap = getattr(model.config, "final_logit_softcapping", None)

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(YesNoJob, job.payload) for job in jobs]
        assert self._rows is not None, "an unloaded model is not run"
        with torch.inference_mode():
            adapters = [payload.lora for payload in payloads]
            hidden = self._encoder.hidden([payload.ids for payload in payloads], adapters=adapters)
            logits = linear(pool(hidden, "last"), self._rows, self._bias).float()
            if self._softcap:
                logits = self._softcap * torch.tanh(logits / self._softcap)
            raw = logits[:, 0] if logits.shape[1] == 1 else logits[:, 0] - logits[:, 1]
        return scored(raw.cpu(), [payload.sigmoid for payload in payloads])

    @property
    def network(self) -> PreTrainedModel:
        """What adapters change."""
        return self._model

    def tensors(self) -> Mapping[str, Tensor]:
        own = {"rows": self._rows, "bias": self._bias}
        return weights.tensors(self._model) | {name: t for name, t in own.items() if t is not None}

    def unload(self) -> None:
        self._rows = self._bias = None
        weights.release(self._model)


class YesNoRerankerFamily:
    """Decoders of the transformers library that were taught to answer with one of two words."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.SCORE])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        config = weights.model_config(path)
        if config.get("model_type") not in PACKED:
            raise weights.BadWeights(f"{path} is a {config.get('model_type')}, which cannot be run packed")
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        per_token = workspace_per_token(config, dtype.itemsize)
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES, per_token)

    def preparer(self, spec: ModelSpec, path: Path) -> YesNoPreparer:
        return YesNoPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> YesNoReranker:
        dtype = weights.dtype_on(device, spec.dtype, path)
        remote = spec.trust_remote_code
        model = weights.load(AutoModelForCausalLM, path, device, dtype, trust_remote_code=remote)
        return YesNoReranker(model, _answers(spec, path))


def _answers(spec: ModelSpec, path: Path) -> Answers:
    """The entry's words, else those of the directory's LogitScore module, else yes and no."""
    named = spec.options.get("yes"), spec.options.get("no")
    if named == (None, None):
        for config in sorted(path.glob("*_LogitScore/config.json")):
            stored = json.loads(config.read_text("utf-8"))
            return Answers(int(stored["true_token_id"]), stored.get("false_token_id"))
        named = ("yes", "no")
    tokenizer = TextTokenizer(path)
    yes, no = (None if word is None else one_token(tokenizer, str(word)) for word in named)
    if yes is None:
        raise weights.BadWeights("an entry that names the word for no names the one for yes too")
    return Answers(yes, no)


def one_token(tokenizer: TextTokenizer, word: str) -> int:
    """Raises BadWeights for a word of several tokens."""
    (ids,) = tokenizer.ids([word])
    if len(ids) != 1:
        raise weights.BadWeights(f"{word!r} is {len(ids)} tokens; one is compared")
    return int(ids[0])


FAMILY = YesNoRerankerFamily()
