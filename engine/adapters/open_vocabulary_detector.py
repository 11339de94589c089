"""Things in images, named in words by whoever asks: OWL-ViT, OWLv2, Grounding DINO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, cast

import torch
from torch import Tensor
from transformers import AutoModelForZeroShotObjectDetection, AutoTokenizer, PreTrainedModel

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.preparing.kinds import extract_options, only_image
from engine.adapters.vision.asked import labels_of, threshold_of
from engine.adapters.vision.pictures import picture, see
from engine.adapters.vision.processors import Processor
from engine.adapters.vision.wording import Grounded, Lookup, Owl, Worded, WordedJob
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import Item, Options, Output, Task, Usage

BASE_BYTES = 64 << 20
WORKSPACE_PER_COST = 512.0
"""As for detectors with labels of their own."""
MOST_LABELS = 1000
KINDS: Mapping[str, type[Lookup]] = {"owlvit": Owl, "owlv2": Owl, "grounding-dino": Grounded}


class WordedPreparer:
    """Reads headers and tokenises labels."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        self._processor = Processor.whole(path)
        self._kind = _kind(path)
        self._config = weights.model_config(path)
        self._tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        extract = extract_options(task, options)
        labels = labels_of(self._spec, extract)
        if not labels:
            raise InvalidInput(f"{self._spec.id} finds what it is asked for: send labels.")
        if len(labels) > MOST_LABELS:
            raise InvalidInput(f"{len(labels)} labels; {self._spec.id} takes {MOST_LABELS}.")
        template = str(self._spec.options.get("template", "{label}"))
        asked = self._kind.word(self._tokenizer, self._config, labels, template)
        threshold = threshold_of(self._spec, extract, self._kind.THRESHOLD)
        assert threshold is not None, "there is a default"
        return [self._one(item, index, asked, threshold) for index, item in enumerate(items)]

    def _one(self, item: Item, index: int, asked: Worded, threshold: float) -> Prepared | EngineError:
        try:
            found = picture(self._processor, only_image(item), index)
        except EngineError as error:
            return error.at(index)
        job = WordedJob(found, asked, threshold)
        return Prepared(found.cost, job, len(found.image.data), Usage(images=1))


class OpenVocabularyDetector:
    def __init__(self, model: PreTrainedModel, processor: Processor, lookup: Lookup) -> None:
        self._model = model
        self._processor = processor
        self._lookup = lookup

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(WordedJob, job.payload) for job in jobs]
        with torch.inference_mode():
            return see(
                self._processor,
                self._model,
                [payload.picture for payload in payloads],
                lambda looks, inputs: self._lookup.find(
                    looks, inputs, [payloads[look.place] for look in looks]
                ),
                lambda place: self._lookup.alike(payloads[place]),
            )

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)


class OpenVocabularyFamily:
    """`AutoModelForZeroShotObjectDetection`; options: `threshold`, `template` that holds
    `{label}`, `labels` for requests that send none."""

    cost_unit: ClassVar[str] = "pixels"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        if _kind(path) is Grounded and spec.dtype != "float32":
            raise weights.BadWeights("Grounding DINO samples its features in float32; dtype: float32")
        dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES, WORKSPACE_PER_COST)

    def preparer(self, spec: ModelSpec, path: Path) -> WordedPreparer:
        return WordedPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> OpenVocabularyDetector:
        kind = _kind(path)
        dtype = weights.dtype_on(device, spec.dtype, path)
        model = weights.load(AutoModelForZeroShotObjectDetection, path, device, dtype)
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        processor = Processor.whole(path)
        return OpenVocabularyDetector(model, processor, kind(model, processor, tokenizer))


def _kind(path: Path) -> type[Lookup]:
    name = weights.model_config(path).get("model_type")
    if name not in KINDS:
        raise weights.BadWeights(f"{path} is a {name}; there are: {', '.join(KINDS)}")
    return KINDS[str(name)]


FAMILY = OpenVocabularyFamily()
