"""One small model of every family that extracts with labels: how it is made, and what it is shown."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers as tf

from engine.requests import Item
from tests import weights
from tests.engine.adapters.extracting import Extracting
from tests.engine.adapters.tiny_tokenizer import tokenizer
from tests.engine.adapters.tiny_vision import noise, save, shown

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tests.engine.adapters import tiny_gliclass, tiny_gliner, tiny_gliner2, tiny_glirel, tiny_tagger
    from tests.engine.adapters.test_image_classifier import SQUARE, VIT
    from tests.engine.adapters.test_image_text_encoder import clip
    from tests.engine.adapters.test_object_detector import detr
    from tests.engine.adapters.test_open_vocabulary_detector import grounding_dino, owlvit
    from tests.engine.adapters.test_text_classifier import CONFIGS as CLASSIFIERS
    from tests.engine.adapters.test_text_classifier import directory as classifier
    from tests.engine.adapters.test_zero_shot import CONFIGS, MARKS, NLI

TEXTS = ("the word on the person", "a place")


def _texts() -> list[Item]:
    return [Item(text=text) for text in TEXTS]


def _pairs() -> list[Item]:
    ends = {"entities": [{"start": 0, "end": 1}, {"start": 2, "end": 6}]}
    return [Item(text=text, metadata=ends) for text in TEXTS]


def _images() -> list[Item]:
    return shown(noise(64, 48), noise(40, 60, 1))


@dataclass(frozen=True)
class Extractor:
    """`closed`: its labels are its own."""

    family: str
    make: Callable[[Path], Any]
    items: Callable[[], list[Item]] = _texts
    closed: bool = False
    entry: dict[str, Any] = field(default_factory=dict)

    def made(self, folder: Path) -> Extracting:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = self.make(folder)
        return Extracting(self.family, path if isinstance(path, Path) else folder, **self.entry)


def _zero_shot(path: Path) -> None:
    tokenizer(path)
    made, size = CONFIGS["bert"]
    words = len(tf.AutoTokenizer.from_pretrained(path))
    model = tf.AutoModelForSequenceClassification.from_config(made(vocab_size=words, **(MARKS | size | NLI)))
    model.save_pretrained(path)


def _glirel(path: Path) -> Path:
    return tiny_glirel.directory("plain", path, json.loads(tiny_glirel.KEPT.read_text())["plain"]["shapes"])


def _images_of(model: Callable[[], Any], processor: Any) -> Callable[[Path], None]:
    return lambda path: (save(path, model(), processor, 0.1), None)[1]


SEEING = {"inputs": ("image",), "overflow": "truncate_text"}
EXTRACTORS: dict[str, Extractor] = {
    "gliner": Extractor("gliner", tiny_gliner.planted),
    "gliner, tokens": Extractor("gliner", lambda path: tiny_gliner.planted(path, "token")),
    "gliner, labels apart": Extractor("gliner", lambda path: tiny_gliner.planted(path, "bi")),
    "gliner2": Extractor("gliner2", tiny_gliner2.planted),
    "gliclass": Extractor("gliclass", lambda path: tiny_gliclass.made(path, prompt_first=True)),
    "gliclass, labels apart": Extractor(
        "gliclass", lambda path: tiny_gliclass.made(path, architecture_type="bi-encoder")
    ),
    "glirel": Extractor("glirel", _glirel, _pairs),
    "zero_shot": Extractor("zero_shot", _zero_shot),
    "token_classifier": Extractor("token_classifier", tiny_tagger.planted, closed=True),
    "text_classifier": Extractor(
        "text_classifier", lambda path: classifier(path, CLASSIFIERS[0]), closed=True
    ),
    "nanoguard": Extractor(
        "nanoguard", lambda _: weights.weights("nanoguard"), lambda: _texts()[:1], closed=True
    ),
    "spacy_ner": Extractor("spacy_ner", lambda _: weights.weights("spacy/en_core_web_sm"), closed=True),
    "image_text_encoder": Extractor(
        "image_text_encoder", lambda path: (clip(path), None)[1], _images, entry=SEEING
    ),
    "owlvit": Extractor(
        "open_vocabulary_detector", lambda path: (owlvit(path), None)[1], _images, entry=SEEING
    ),
    "grounding_dino": Extractor(
        "open_vocabulary_detector", lambda path: (grounding_dino(path), None)[1], _images, entry=SEEING
    ),
    "image_classifier": Extractor(
        "image_classifier",
        _images_of(lambda: tf.ViTForImageClassification(VIT), SQUARE),
        _images,
        closed=True,
        entry=SEEING,
    ),
    "object_detector": Extractor(
        "object_detector",
        lambda path: (save(path, *detr()[:2], 0.1), None)[1],
        _images,
        closed=True,
        entry=SEEING,
    ),
}
