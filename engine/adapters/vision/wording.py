"""How open-vocabulary detectors read the labels that they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize
from transformers import PreTrainedModel

from engine.adapters.vision.boxes import detections, known, readable
from engine.adapters.vision.pictures import Look, Picture
from engine.adapters.vision.processors import Processor
from engine.adapters.vision.vectors import TextVectors
from engine.errors import EngineError, InputTooLong, InvalidInput, NotFinite
from engine.requests import Extracted


@dataclass(frozen=True, slots=True)
class Worded:
    """Labels as they were asked, and as the model reads them."""

    labels: tuple[str, ...]
    texts: tuple[str, ...]
    ids: tuple[int, ...] = ()
    """Grounding DINO: all labels in one text."""
    owners: tuple[int, ...] = ()
    """For each of these tokens its label; -1 for what stands between."""


@dataclass(frozen=True, slots=True)
class WordedJob:
    picture: Picture
    asked: Worded
    threshold: float


class Lookup(ABC):
    """One architecture's way from images and labels to boxes."""

    THRESHOLD: ClassVar[float]
    """What the reference keeps unless told otherwise."""

    def __init__(self, model: PreTrainedModel, processor: Processor, tokenizer: Any) -> None:
        self._model: Any = model
        self._processor = processor
        self._tokenizer = tokenizer

    @staticmethod
    @abstractmethod
    def word(tokenizer: Any, config: Mapping[str, Any], labels: Sequence[str], template: str) -> Worded:
        """Raises InvalidInput for labels that the model cannot read."""

    @abstractmethod
    def find(
        self, looks: Sequence[Look], inputs: Mapping[str, Tensor], jobs: Sequence[WordedJob]
    ) -> list[Extracted | EngineError]:
        """Of images of one shape whose jobs are alike."""

    def alike(self, job: WordedJob) -> int:
        """Jobs with the same number may run together."""
        return 0


class Owl(Lookup):
    """OWL-ViT and OWLv2 (arXiv 2205.06230, 2306.09683): images and labels meet in the last product only,
    so a label's vector is made once."""

    THRESHOLD = 0.1

    def __init__(self, model: PreTrainedModel, processor: Processor, tokenizer: Any) -> None:
        super().__init__(model, processor, tokenizer)
        self._vectors = TextVectors(self._embed)

    @staticmethod
    def word(tokenizer: Any, config: Mapping[str, Any], labels: Sequence[str], template: str) -> Worded:
        texts = tuple(template.replace("{label}", label) for label in labels)
        most = int((config.get("text_config") or {}).get("max_position_embeddings", 16))
        lengths = map(len, tokenizer(list(texts))["input_ids"])
        if long := [text for text, length in zip(texts, lengths, strict=True) if length > most]:
            raise InputTooLong(
                f"The label {long[0][:50]!r}... is longer than the {most} tokens that the model takes.",
                max_length=most,
            )
        return Worded(tuple(labels), texts)

    def find(
        self, looks: Sequence[Look], inputs: Mapping[str, Tensor], jobs: Sequence[WordedJob]
    ) -> list[Extracted | EngineError]:
        features, _ = self._model.image_embedder(pixel_values=inputs["pixel_values"])
        flat = features.flatten(1, 2)
        boxes = self._model.box_predictor(flat, features)
        return [
            self._answer(flat[place : place + 1], boxes[place : place + 1], look, job)
            for place, (look, job) in enumerate(zip(looks, jobs, strict=True))
        ]

    def _answer(self, features: Tensor, boxes: Tensor, look: Look, job: WordedJob) -> Extracted | EngineError:
        queries = self._vectors.of(job.asked.texts).to(features.device, features.dtype)
        logits, _ = self._model.class_predictor(features, queries[None])
        found = readable(_Found(logits, boxes))
        if not known(found.logits, found.pred_boxes):
            return NotFinite()
        (row,) = self._processor.reference.post_process_object_detection(
            found, threshold=-1.0, target_sizes=[(look.height, look.width)]
        )
        names = [job.asked.labels[label] for label in row["labels"].tolist()]
        return detections(names, row["scores"], row["boxes"], look, job.threshold)

    def _embed(self, texts: Sequence[str]) -> Tensor:
        length = self._model.config.text_config.max_position_embeddings
        tokens = self._tokenizer(
            list(texts), padding="max_length", truncation=True, max_length=length, return_tensors="pt"
        )
        inner = getattr(self._model, self._model.config.model_type)
        made: Tensor = inner.get_text_features(
            input_ids=tokens["input_ids"].to(self._model.device),
            attention_mask=tokens["attention_mask"].to(self._model.device),
        ).pooler_output
        return normalize(made, dim=-1)


@dataclass(frozen=True, slots=True)
class _Found:
    logits: Tensor
    pred_boxes: Tensor


class Grounded(Lookup):
    """Grounding DINO (arXiv 2303.05499): all labels in one text, which the image's features attend to.

    A label's score is that of its best token. The reference gives the words whose tokens exceed a second
    threshold, which may be parts of several labels; here a box has the label that is most certain.
    """

    THRESHOLD = 0.25

    @staticmethod
    def word(tokenizer: Any, config: Mapping[str, Any], labels: Sequence[str], template: str) -> Worded:
        texts = tuple(template.replace("{label}", label).strip().lower() for label in labels)
        if bad := [label for label, text in zip(labels, texts, strict=True) if "." in text or not text]:
            raise InvalidInput(f"The label {bad[0][:100]!r} is empty or has a full stop, which ends a label.")
        ids, owners = [tokenizer.cls_token_id], [-1]
        stop = tokenizer(".", add_special_tokens=False)["input_ids"]
        for number, text in enumerate(texts):
            words = tokenizer(text, add_special_tokens=False)["input_ids"]
            ids += [*words, *stop]
            owners += [number] * len(words) + [-1] * len(stop)
        ids, owners = [*ids, tokenizer.sep_token_id], [*owners, -1]
        most = int(config.get("max_text_len", 256))
        if len(ids) > most:
            raise InvalidInput(
                f"The labels are {len(ids)} tokens together; the model takes {most}. Send fewer."
            )
        return Worded(tuple(labels), texts, tuple(ids), tuple(owners))

    def alike(self, job: WordedJob) -> int:
        return len(job.asked.ids)

    def find(
        self, looks: Sequence[Look], inputs: Mapping[str, Tensor], jobs: Sequence[WordedJob]
    ) -> list[Extracted | EngineError]:
        ids = torch.tensor([job.asked.ids for job in jobs], device=self._model.device)
        out = readable(
            self._model(
                **inputs,
                input_ids=ids,
                token_type_ids=torch.zeros_like(ids),
                attention_mask=torch.ones_like(ids),
            )
        )
        answers = zip(out.logits, out.pred_boxes, looks, jobs, strict=True)
        return [self._answer(*answer) for answer in answers]

    def _answer(self, logits: Tensor, boxes: Tensor, look: Look, job: WordedJob) -> Extracted | EngineError:
        chances = logits.sigmoid()
        owners = torch.tensor(job.asked.owners)
        of_label = torch.stack(
            [
                chances[:, : len(owners)][:, owners == number].amax(1)
                for number in range(len(job.asked.labels))
            ]
        )
        scores, best = of_label.max(0)
        centre, size = boxes.split(2, -1)
        corners = torch.cat([centre - size / 2, centre + size / 2], -1)
        scale = torch.tensor([look.width, look.height, look.width, look.height])
        names = [job.asked.labels[number] for number in best.tolist()]
        return detections(names, scores, corners * scale, look, job.threshold)
