"""Texts into classes that the caller names, by inference: does the text entail "this is LABEL"?

Does what transformers' ZeroShotClassificationPipeline does (arXiv 1909.00161). Each label is a pair of the
text and a hypothesis; the pairs of all texts run as those of a cross-encoder do. A text longer than one
window is read in several where `overflow: window` says so, and their chances are averaged by length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import linear, weights
from engine.adapters.forward.heads import CLASSIFIERS, sequence_logits
from engine.adapters.forward.packed import CHUNK, Encoder, Ids, workspace_per_token
from engine.adapters.forward.packing import Layout, buckets
from engine.adapters.labelling.labels import in_order
from engine.adapters.labelling.open_labels import OpenLabels, Thresholds, Wanted, checked, flag
from engine.adapters.preparing.kinds import each_text
from engine.adapters.preparing.tokens import Frame, Piece, TextTokenizer, max_tokens
from engine.adapters.preparing.windows import fit
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput, NotFinite
from engine.requests import Classification, Extracted, ExtractOptions, Item, Options, Output, Task, Usage

TEMPLATE = "This example is {}."
OVERLAP = 64
BASE_BYTES = 16 << 20
"""What a forward pass takes whatever its size: GEMM buffers and small change."""


@dataclass(frozen=True, slots=True)
class EntailJob:
    """One text, in windows, and what is judged of each."""

    texts: tuple[Ids, ...]
    hypotheses: tuple[Ids, ...]
    """Shared by all items of a request; made into pairs only when they run."""
    frame: Frame
    wanted: Wanted
    multi_label: bool
    cut: bool
    """Whether labels that stay below their thresholds are left out."""

    @property
    def pairs(self) -> list[Piece]:
        """A pair for each label in each window, labels first."""
        return [self.frame.fill(text, hypothesis) for text in self.texts for hypothesis in self.hypotheses]

    @property
    def cost(self) -> int:
        """Tokens of all pairs."""
        texts, hypotheses = len(self.texts), len(self.hypotheses)
        inside = hypotheses * sum(map(len, self.texts)) + texts * sum(map(len, self.hypotheses))
        return inside + texts * hypotheses * self.frame.length


class EntailPreparer:
    """Tokenises each text and each hypothesis once. Only texts are ever cut."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        config = weights.model_config(path)
        self._spec = spec
        self._labels = OpenLabels(spec)
        self._tokenizer = TextTokenizer(path)
        self.cutter = self._tokenizer.cutter
        self._room = max_tokens(spec, config) - self._tokenizer.pair.length
        self._vocabulary = int(config["vocab_size"])

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        if task is not Task.EXTRACT or not isinstance(options, ExtractOptions):
            raise InvalidInput(f"This model finds labels of texts; it cannot {task}.")
        if options.output_schema is not None or options.instruction is not None:
            raise InvalidInput(
                "This model takes labels; it cannot follow an output_schema or an instruction."
            )
        wanted = self._labels.choose(options.labels, Thresholds.of(self._spec, options, 0.0))
        multi = flag(self._spec, options, "multi_label", False)
        hypotheses = tuple(self._tokenizer.ids(self._hypotheses(options, wanted)))
        return each_text(
            items,
            self._tokenizer.ids,
            lambda _, ids, index: self._one(ids, hypotheses, wanted, multi, options, index),
        )

    def _hypotheses(self, options: ExtractOptions, wanted: Wanted) -> list[str]:
        template = options.extra.get("hypothesis_template")
        if template is None:
            template = self._spec.options.get("hypothesis_template", TEMPLATE)
        if "{}" not in checked(template, "options.hypothesis_template"):
            raise InvalidInput("options.hypothesis_template is a text with {} where the label goes.")
        return [template.replace("{}", label, 1) for label in wanted.prompts]

    def _one(
        self,
        ids: Ids,
        hypotheses: tuple[Ids, ...],
        wanted: Wanted,
        multi: bool,
        options: ExtractOptions,
        index: int,
    ) -> Prepared | EngineError:
        room = self._room - max(len(hypothesis) for hypothesis in hypotheses)
        if room < 1:
            return InputTooLong("A label is longer than the model takes.", item=index, max_length=self._room)
        if not len(ids):
            return InvalidInput(f"item {index} has no tokens", item=index)
        try:
            spans = fit(len(ids), room, min(OVERLAP, room // 4), self._spec, options.overflow)
        except EngineError as error:
            return error.at(index)
        if max(int(part.max()) for part in (ids, *hypotheses) if len(part)) >= self._vocabulary:
            return InvalidInput(f"item {index} holds a token that the model does not have", item=index)
        texts = tuple(ids[span.start : span.end] for span in spans)
        cut = (
            options.threshold is not None
            or "threshold" in self._spec.options
            or "thresholds" in options.extra
        )
        job = EntailJob(texts, hypotheses, self._tokenizer.pair, wanted, multi, cut)
        usage = Usage(input_tokens=job.cost, truncated=int(spans[-1].end < len(ids)))
        return Prepared(job.cost, job, 8 * len(ids), usage)


class ZeroShot:
    """Weights of a model that was trained on inference."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._entails = _entailment(model.config)
        self._contradicts = -1 if self._entails == 0 else 0
        self._encoder = Encoder(model) if model.config.model_type in CLASSIFIERS else None
        if self._encoder is None:
            linear.pack(model)

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(EntailJob, job.payload) for job in jobs]
        pairs = [payload.pairs for payload in payloads]
        with torch.inference_mode():
            logits = self._logits(list(chain.from_iterable(pairs))).float().cpu().numpy()
        ends = np.cumsum(list(map(len, pairs)))[:-1]
        return [
            self._answer(payload, rows)
            for payload, rows in zip(payloads, np.split(logits, ends), strict=True)
        ]

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)

    def _logits(self, pairs: Sequence[Piece]) -> Tensor:
        if self._encoder is not None:
            hidden = self._encoder.hidden([pair.ids for pair in pairs], [pair.types for pair in pairs])
            return sequence_logits(self._model, hidden)
        return self._whole(pairs)

    def _whole(self, pairs: Sequence[Piece]) -> Tensor:
        """Models with a decoder (BART), in buckets of similar length."""
        layout = Layout([len(pair.ids) for pair in pairs])
        device, padding = self._model.device, int(self._model.config.pad_token_id or 0)
        budget = CHUNK.get(device.type, CHUNK["cpu"])
        parts = []
        for places in buckets(layout.lengths, budget):
            lengths = layout.lengths[places]
            real = np.arange(lengths[-1]) < lengths[:, None]
            ids = np.full(real.shape, padding, np.int64)
            ids[real] = np.concatenate([pairs[i].ids for i in layout.order[places]])
            mask = torch.from_numpy(real).to(device, torch.int64)
            said = self._model(torch.from_numpy(ids).to(device), attention_mask=mask, use_cache=False)
            parts.append(said.logits)
        return layout.given(torch.cat(parts))

    def _answer(self, job: EntailJob, logits: NDArray[np.float32]) -> Extracted | EngineError:
        """`logits` has a row a pair."""
        if not np.isfinite(logits).all():
            return NotFinite()
        logits = logits.reshape(len(job.texts), len(job.wanted), -1)
        if job.multi_label or len(job.wanted) == 1:
            chances = _softmax(logits[:, :, [self._contradicts, self._entails]])[:, :, 1]
        else:
            chances = _softmax(logits[:, :, self._entails])
        row = np.average(chances, axis=0, weights=list(map(len, job.texts))).tolist()
        return Extracted(classifications=classified(job.wanted, row, job.cut))


def classified(wanted: Wanted, chances: Sequence[float], cut: bool) -> tuple[Classification, ...]:
    """Most likely first. Of several prompts with one name the likeliest counts."""
    best: dict[str, tuple[float, float]] = {}
    for name, chance, least in zip(wanted.names, chances, wanted.thresholds, strict=True):
        best[name] = max(best.get(name, (chance, least)), (chance, least))
    kept = (
        Classification(name, chance) for name, (chance, least) in best.items() if not cut or chance >= least
    )
    return tuple(sorted(kept, key=lambda c: -c.score))


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    raised = np.exp(logits - logits.max(-1, keepdims=True))
    return cast("NDArray[np.float32]", raised / raised.sum(-1, keepdims=True))


def _entailment(config: Any) -> int:
    """The output that means "follows". Raises BadWeights when none is called so."""
    labels = in_order(config.id2label)
    for place, label in enumerate(labels):
        if label.lower().startswith("entail"):
            return place
    raise weights.BadWeights(f"none of the labels {', '.join(labels)} is an entailment")


class ZeroShotFamily:
    """Sequence classifiers of the transformers library with an output for entailment."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        per_token = workspace_per_token(weights.model_config(path), dtype.itemsize)
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES, per_token)

    def preparer(self, spec: ModelSpec, path: Path) -> EntailPreparer:
        return EntailPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> ZeroShot:
        model = weights.load(
            AutoModelForSequenceClassification,
            path,
            device,
            weights.dtype_on(device, spec.dtype, path),
            trust_remote_code=spec.trust_remote_code,
        )
        return ZeroShot(model)


FAMILY = ZeroShotFamily()
