"""GLiClass's own layers, run on many windows at once, whatever labels each has.

Encoders run as every encoder here does. What stands behind them pools over whatever it is given, padding too,
so there only windows of one length and as many labels share a pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize
from transformers import PreTrainedModel

from engine.adapters.classes.directory import BI, CACHED, DECODED, DECODED_TEXT, FUSED, UNI
from engine.adapters.classes.jobs import ClassesJob, Window
from engine.adapters.forward import linear
from engine.adapters.forward.packed import CHUNK, Encoder, Ids
from engine.adapters.forward.packing import buckets
from engine.adapters.labelling.kept import LabelVectors

LABELS = 12_800
"""Vectors of labels that windows hold at once behind the encoder, each window its own."""
Rows = list[NDArray[np.float32]]
"""One logit a label, of each window."""


class Network(ABC):
    """Threads may share it."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.module: nn.Module = model
        self._parts = cast(Any, model).model
        self._config = model.config
        self._calibrator = cast(Any, model).calibrator

    def see(self, jobs: Sequence[ClassesJob]) -> list[Rows]:
        left = iter(self._logits([window for job in jobs for window in job.windows]))
        return [[next(left) for _ in job.windows] for job in jobs]

    @abstractmethod
    def _logits(self, windows: Sequence[Window]) -> Rows: ...

    def _device(self) -> torch.device:
        """Asked each time: a model that was parked may come back to another card."""
        return next(self.module.parameters()).device

    def _batch(self, sequences: Sequence[Ids]) -> tuple[Tensor, Tensor]:
        """Sequences of one length, and what of it is real."""
        ids = torch.from_numpy(np.stack(sequences).astype(np.int64)).to(self._device())
        return ids, torch.ones_like(ids)

    def _scored(self, texts: Tensor, classes: Tensor, logits: Tensor) -> NDArray[np.float32]:
        """`logits` (windows, labels), calibrated where the model does that."""
        if self._calibrator is not None:
            scale, shift = self._calibrator(texts, classes, logits, torch.ones_like(logits))
            logits = scale * logits.float() + shift
        found: NDArray[np.float32] = logits.float().cpu().numpy()
        return found

    def _classes(self, states: Tensor, ids: Tensor, real: Tensor, labels: int) -> Tensor:
        """(windows, labels, dim): what stands for each label in a prompt."""
        vectors: Tensor = self._parts._extract_class_features(states, ids, real, labels)[0]
        return self._normal(self._parts.classes_projector(vectors))

    def _normal(self, vectors: Tensor) -> Tensor:
        return (
            normalize(vectors, dim=-1, eps=self._parts.epsilon)
            if self._config.normalize_features
            else vectors
        )

    def _scale(self, logits: Tensor) -> Tensor:
        return logits * self._parts.logit_scale if self._config.normalize_features else logits


class Together(Network):
    """Labels and text are one sequence."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        self._plain = None if self._config.use_segment_embeddings else Encoder(self._parts.encoder_model)
        if self._plain is None:
            linear.pack(self._parts.encoder_model)

    def _logits(self, windows: Sequence[Window]) -> Rows:
        states = self._states([window.ids for window in windows])

        def head(places: Sequence[int]) -> NDArray[np.float32]:
            ids, real = self._batch([windows[place].ids for place in places])
            block = torch.stack([states[place] for place in places])
            logits, _, texts, classes, _ = self._parts.process_encoder_output(
                ids, real, block, max_num_classes=windows[places[0]].labels
            )
            return self._scored(texts, classes, logits)

        return _by_shape(windows, head)

    def _states(self, sequences: Sequence[Ids]) -> Sequence[Tensor]:
        if self._plain is not None:
            hidden = self._plain.hidden(sequences)
            return [hidden.of(place) for place in range(len(sequences))]
        found = []
        for ids in sequences:  # what the encoder is given are vectors, which are not packed
            batch, real = self._batch([ids])
            vectors = self._parts.encoder_model.get_input_embeddings()(batch)
            vectors = vectors + self._parts.segment_embeddings(self._parts._create_segment_ids(batch))
            found.append(self._parts.encoder_model(inputs_embeds=vectors, attention_mask=real)[0][0])
        return found


class LabelsApart(Network):
    """Labels are read by an encoder of their own."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        self._of_labels = Encoder(self._parts.label_encoder)
        self._known = LabelVectors(self._read)

    def _labels(self, windows: Sequence[Window]) -> list[Tensor]:
        """(labels, dim) for each window."""
        left = iter(self._known.of([ids for window in windows for ids in window.beside]))
        return [torch.stack([next(left) for _ in window.beside]) for window in windows]

    def _read(self, labels: Sequence[Ids]) -> list[Tensor]:
        with torch.inference_mode():
            hidden = self._of_labels.hidden(labels)
            pooled = [self._parts.pooler(hidden.of(place)[None]) for place in range(len(labels))]
            projected = self._parts.biencoder_projector(torch.cat(pooled))
            return list(self._normal(self._parts.classes_projector(projected)).cpu())


class Apart(LabelsApart):
    """Texts and labels meet in the score only."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        self._encoder = Encoder(self._parts.encoder_model)

    def _logits(self, windows: Sequence[Window]) -> Rows:
        vectors = self._labels(windows)
        hidden = self._encoder.hidden([window.ids for window in windows])

        def head(places: Sequence[int]) -> NDArray[np.float32]:
            texts = self._parts.pool_outputs((torch.stack([hidden.of(place) for place in places]),))
            classes = torch.stack([vectors[place] for place in places]).to(self._device())
            return self._scored(texts, classes, self._parts.scorer(texts, classes) * self._parts.logit_scale)

        return _by_shape(windows, head)


class Fused(LabelsApart):
    """The vectors of labels stand in the text's own sequence, in the places of markers."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        linear.pack(self._parts.encoder_model)

    def _logits(self, windows: Sequence[Window]) -> Rows:
        vectors = self._labels(windows)

        def head(places: Sequence[int]) -> NDArray[np.float32]:
            ids, real = self._batch([windows[place].ids for place in places])
            given = torch.stack([vectors[place] for place in places]).to(self._device())
            every = torch.ones(given.shape[:2], device=given.device)
            states, classes = self._parts.encode_text(ids, real, given, every)
            texts = self._parts.pool_outputs(states)
            return self._scored(texts, classes, self._parts.scorer(texts, classes) * self._parts.logit_scale)

        return _by_shape(windows, head)


class Decoded(Network):
    """The text goes through an encoder, and a prompt of labels through the decoder that looks at it."""

    labels_first: ClassVar[bool] = False
    """Whether it is the other way round."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        linear.pack(self._parts.encoder_decoder_model)

    def _logits(self, windows: Sequence[Window]) -> Rows:
        return _by_shape(windows, lambda places: self._head([windows[place] for place in places]))

    def _head(self, windows: Sequence[Window]) -> NDArray[np.float32]:
        text, of_text = self._batch([window.ids for window in windows])
        prompt, of_prompt = self._batch([window.beside[0] for window in windows])
        network, labels = self._parts.encoder_decoder_model, windows[0].labels
        if self.labels_first:
            said = network(input_ids=prompt, decoder_input_ids=text, use_cache=False)
            classes = self._classes(said.encoder_last_hidden_state, prompt, of_prompt, labels)
            pooled = said.last_hidden_state[:, -1]
        else:
            mask = self._parts._make_bidirectional_4d_mask(of_prompt, next(network.parameters()).dtype)
            said = network(
                input_ids=text, decoder_input_ids=prompt, decoder_attention_mask=mask, use_cache=False
            )
            classes = self._classes(said.last_hidden_state, prompt, of_prompt, labels)
            states = said.encoder_last_hidden_state
            if self._config.use_lstm:
                states = self._parts.lstm(states, of_text)
            pooled = self._parts.pooler(states)
        texts = self._normal(self._parts.text_projector(pooled))
        return self._scored(texts, classes, self._scale(self._parts.scorer(texts, classes)))


class DecodedText(Decoded):
    labels_first = True


class Cached(Network):
    """A decoder reads the text and then the labels; a small encoder behind it looks at the labels both ways.

    Padding stands behind, where a decoder does not look, so windows of any lengths and labels share a pass.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        linear.pack(self._parts.decoder_model)

    def _logits(self, windows: Sequence[Window]) -> Rows:
        order = sorted(range(len(windows)), key=lambda place: len(windows[place].ids))
        lengths = np.array([len(windows[place].ids) for place in order])
        budget = CHUNK.get(self._device().type, CHUNK["cpu"])
        found: dict[int, NDArray[np.float32]] = {}
        with torch.inference_mode():
            for part in buckets(lengths, budget):
                places = order[part]
                real = np.arange(lengths[part][-1]) < lengths[part][:, None]
                ids = np.full(real.shape, int(self._config.pad_token_id or 0), np.int64)
                ids[real] = np.concatenate([windows[place].ids for place in places])
                given = {"input_ids": ids, "attention_mask": real.astype(np.int64)}
                logits = cast(Any, self.module)(
                    **{name: torch.from_numpy(value).to(self._device()) for name, value in given.items()}
                ).logits
                rows = logits.float().cpu().numpy()
                found |= {p: row[: windows[p].labels] for p, row in zip(places, rows, strict=True)}
        return [found[place] for place in range(len(windows))]


NETWORKS: dict[str, type[Network]] = {
    UNI: Together,
    BI: Apart,
    FUSED: Fused,
    DECODED: Decoded,
    DECODED_TEXT: DecodedText,
    CACHED: Cached,
}


def _by_shape(windows: Sequence[Window], head: Callable[[Sequence[int]], NDArray[np.float32]]) -> Rows:
    """What `head` says of windows of one length, with as many labels, and as long a prompt of them."""
    found: dict[int, NDArray[np.float32]] = {}
    with torch.inference_mode():
        for places in _alike(windows):
            found.update(zip(places, head(places), strict=True))
    return [found[place] for place in range(len(windows))]


def _alike(windows: Sequence[Window]) -> Iterator[Sequence[int]]:
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place, window in enumerate(windows):
        # of labels read one by one only the number matters
        prompt = len(window.beside[0]) if len(window.beside) == 1 else 0
        groups[len(window.ids), window.labels, prompt].append(place)
    for (_, labels, _), places in groups.items():
        most = max(1, LABELS // labels)
        yield from (places[first : first + most] for first in range(0, len(places), most))
