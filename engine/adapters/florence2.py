"""Florence-2 (arXiv 2311.06242): captions, text, things and phrases of an image, chosen by a task token.

Its answers are text with places in it; transformers' own processor reads them. They carry no scores: things
found have the score 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, ones_like
from transformers import AutoTokenizer
from transformers.models.florence2.processing_florence2 import Florence2Processor

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.labelling.open_labels import checked
from engine.adapters.preparing.images import header
from engine.adapters.preparing.kinds import only_image
from engine.adapters.preparing.tokens import CHARACTERS_PER_TOKEN
from engine.adapters.vision import asked, writer, writing
from engine.adapters.vision.boxes import inside
from engine.adapters.vision.pictures import Look, picture
from engine.adapters.vision.processors import Processor
from engine.catalog import ModelSpec
from engine.errors import InvalidInput
from engine.requests import Detection, Entity, Extracted, ExtractOptions, Item, Media, Options, Task

GROUNDING = "<CAPTION_TO_PHRASE_GROUNDING>"
CAPTION = "<CAPTION>"
REGION = "<REGION_TO_"


@dataclass(frozen=True, slots=True)
class FlorenceTask:
    token: str
    labels: tuple[str, ...]


class FlorencePreparer:
    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        self._images = Processor.whole(path)
        self._processor = processor_of(path, self._images)
        self._defaults = writing.defaults_of(path)
        text = weights.model_config(path)["text_config"]
        self._context = int(text.get("max_position_embeddings", 1024))

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Any]:
        extract = writing.extraction(task, options)
        for label in extract.labels:
            checked(label)
        token = self._task(extract)

        def one(item: Item, index: int) -> Prepared:
            image = only_image(item)
            found = picture(self._images, image, index)
            prompt = self._prompt(token, extract, image)
            pace = writing.pace_of(self._spec, extract.extra, self._context, 1, self._defaults)
            return writing.prepared(found, prompt, pace, FlorenceTask(token, extract.labels))

        return writing.each(items, one)

    def _task(self, options: ExtractOptions) -> str:
        """The request's, the entry's, or what its labels mean. Raises InvalidInput."""
        said = asked.text_of(options.extra, "task", 100)
        token = said or (GROUNDING if options.labels else str(self._spec.options.get("task", CAPTION)))
        token = f"<{token.strip('<>').upper()}>"
        known = {**self._processor.task_prompts_without_inputs, **self._processor.task_prompts_with_input}
        if token not in known:
            raise InvalidInput(f"There is no task {token[:100]}; there are: {', '.join(known)}.")
        return token

    def _prompt(self, token: str, options: ExtractOptions, image: Media) -> list[int]:
        """Places for the image, then the task in words. Raises InvalidInput."""
        sent = options.instruction or ". ".join(options.labels) or None
        if token.startswith(REGION):
            sent = self._region(options.extra.get("region"), image)
        if token in self._processor.task_prompts_without_inputs:
            if sent is not None:
                raise InvalidInput(f"{token} takes neither labels nor an instruction.")
            words = self._processor.task_prompts_without_inputs[token]
        elif sent is None:
            raise InvalidInput(f"{token} is about something: send an instruction, or labels.")
        else:
            words = self._processor.task_prompts_with_input[token].replace("{input}", sent)
        marker = self._processor.image_token
        if sent is not None and (marker in sent or len(sent) > CHARACTERS_PER_TOKEN * self._context):
            raise InvalidInput(f"What is sent holds {marker}, or is longer than {self._spec.id} reads.")
        tokenizer = self._processor.tokenizer
        places = self._processor.image_token * self._processor.num_image_tokens
        whole = f"{places}{tokenizer.bos_token}{words}{tokenizer.eos_token}"
        ids: list[int] = tokenizer(whole, add_special_tokens=False)["input_ids"]
        if len(ids) > self._context:
            raise InvalidInput(f"The prompt has {len(ids)} tokens; the model takes {self._context}.")
        return ids

    def _region(self, region: object, image: Media) -> str:
        """A box in pixels, as the model writes it."""
        numbers = region if isinstance(region, list | tuple) else ()
        if len(numbers) != 4 or not all(
            isinstance(each, int | float) and 0 <= each < 1e6 for each in numbers
        ):
            raise InvalidInput("options.region is a box in pixels: [x1, y1, x2, y2].")
        size = header(image)
        box = torch.tensor([numbers], dtype=torch.float32)
        found = self._processor.post_processor.quantize(box, (size.width, size.height))
        return "".join(f"<loc_{place}>" for place in found[0].tolist())


class FlorenceReading:
    def __init__(self, processor: Any) -> None:
        self._processor = processor

    @property
    def ends(self) -> Mapping[str, Any]:
        """What the model's own configuration says is enough."""
        return {}

    def prompts(self, ids: Tensor) -> Mapping[str, Tensor]:
        return {"input_ids": ids, "attention_mask": ones_like(ids)}

    def answer(self, ids: Sequence[int], job: writing.WriteJob, look: Look) -> Extracted:
        text = self._processor.tokenizer.decode(ids, skip_special_tokens=False)
        return self.read(text.replace(self._processor.tokenizer.pad_token, ""), job.asked, look)

    def read(self, text: str, task: FlorenceTask, look: Look) -> Extracted:
        """`text` as it was written, with its places and ends."""
        size = (look.width, look.height)
        told = self._processor.post_process_generation(text=text, task=task.token, image_size=size)
        return _extracted(told[task.token], task, look)


def _extracted(told: Any, task: FlorenceTask, look: Look) -> Extracted:
    data: dict[str, Any] = {"task": task.token}
    if isinstance(told, str):
        return Extracted(data={**data, "text": told})
    asked_by = {label.casefold().strip(): label for label in task.labels}
    names = told.get("bboxes_labels", told.get("labels", ()))
    objects = tuple(
        Detection(asked_by.get(name.casefold().strip(), name), 1.0, inside(box, look))
        for name, box in zip(names, told.get("bboxes", ()), strict=False)
    )
    entities = tuple(
        Entity(name.replace("</s>", "").strip(), "text", 1.0, bbox=_around(quad, look))
        for name, quad in zip(names, told.get("quad_boxes", ()), strict=False)
    )
    if "quad_boxes" in told:
        data["quads"] = told["quad_boxes"]
    if told.get("polygons"):
        shapes = zip(told.get("polygons_labels", names), told["polygons"], strict=True)
        data["polygons"] = [{"label": name, "polygons": shape} for name, shape in shapes]
    return Extracted(objects=objects, entities=entities, data=data)


def _around(quad: Sequence[float], look: Look) -> tuple[float, float, float, float]:
    """The upright box around four corners."""
    return inside((min(quad[0::2]), min(quad[1::2]), max(quad[0::2]), max(quad[1::2])), look)


def processor_of(path: Path, images: Processor) -> Any:
    """transformers' processor, by parts: made whole it would ask for torchvision."""
    file = path / "processor_config.json"
    held = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    keys = ("num_additional_image_tokens", "post_processor_config")
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    if not hasattr(images.reference, "image_seq_length"):
        raise weights.BadWeights(f"{path}: preprocessor_config.json has no image_seq_length")
    return Florence2Processor(images.reference, tokenizer, **{k: held[k] for k in keys if k in held})


class Florence2Family:
    """`Florence2ForConditionalGeneration` of transformers itself (the `florence-community` checkpoints).
    Options: `task`, `max_new_tokens`, `num_beams`; a request also has `region`."""

    cost_unit: ClassVar[str] = "pixels"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        return writing.footprint(spec, path)

    def preparer(self, spec: ModelSpec, path: Path) -> FlorencePreparer:
        return FlorencePreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> writer.Writer:
        images = Processor.whole(path)
        return writer.loaded(spec, path, device, images, FlorenceReading(processor_of(path, images)))


FAMILY = Florence2Family()
