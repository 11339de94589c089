"""Models that look at an image and write an answer to its end: an encoder for the image, a decoder for text.

An answer is written in one run, all images of a batch together, token by token, and is bounded by
`max_new_tokens`: such answers are short, and a batch of them is preempted by nobody. Only jobs whose
prompts have one length run together, because padding would move the positions of the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel

from engine.adapters.family import Prepared
from engine.adapters.forward import weights
from engine.adapters.vision import asked
from engine.adapters.vision.pictures import Look, Picture, see
from engine.adapters.vision.processors import Processor
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import ExtractOptions, Output, Task, Usage

MAX_NEW_TOKENS = 1024
TOKEN_PIXELS = 256
"""A token that is written costs as much as so many pixels: a patch of 16 x 16."""
MOST_BEAMS = 8


@dataclass(frozen=True, slots=True)
class Pace:
    """How an answer is written; jobs of different paces do not run together."""

    max_new_tokens: int
    beams: int


@dataclass(frozen=True, slots=True)
class WriteJob:
    picture: Picture
    prompt: tuple[int, ...]
    pace: Pace
    asked: Any
    """What only the family knows: how the answer is read."""


class Reading(Protocol):
    """How one family puts its prompts, and reads what was written."""

    @property
    def ends(self) -> Mapping[str, Any]:
        """Further arguments of `generate`: which tokens end an answer, fill it up, or never come."""
        ...

    def prompts(self, ids: Tensor) -> Mapping[str, Tensor]:
        """Inputs of `generate`, of prompts (jobs, tokens)."""
        ...

    def answer(self, ids: Sequence[int], job: WriteJob, look: Look) -> Output | EngineError:
        """Of the tokens of one answer, special ones included."""
        ...


class Writer:
    """Weights of such a model."""

    def __init__(self, model: PreTrainedModel, processor: Processor, reading: Reading, path: Path) -> None:
        self._model: Any = model
        if defaults_of(path):
            self._model.generation_config = GenerationConfig.from_pretrained(path, local_files_only=True)
        # of the two limits only that of each request counts
        self._model.generation_config.max_length = None
        self._early = self._model.generation_config.early_stopping
        self._processor = processor
        self._reading = reading

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(WriteJob, job.payload) for job in jobs]

        def write(looks: Sequence[Look], inputs: Mapping[str, Tensor]) -> list[Output | EngineError]:
            chosen = [payloads[look.place] for look in looks]
            ids = torch.tensor([job.prompt for job in chosen], device=self._model.device)
            pace = chosen[0].pace
            written = self._model.generate(
                pixel_values=inputs["pixel_values"],
                **self._reading.prompts(ids),
                **self._reading.ends,
                max_new_tokens=pace.max_new_tokens,
                num_beams=pace.beams,
                early_stopping=self._early if pace.beams > 1 else False,
                do_sample=False,
                use_cache=True,
            )
            return [
                self._reading.answer(row.tolist(), job, look)
                for row, job, look in zip(written, chosen, looks, strict=True)
            ]

        with torch.inference_mode():
            return see(
                self._processor,
                self._model,
                [payload.picture for payload in payloads],
                write,
                lambda place: (len(payloads[place].prompt), payloads[place].pace),
            )

    def tensors(self) -> Mapping[str, Tensor]:
        return weights.tensors(self._model)

    def unload(self) -> None:
        weights.release(self._model)


def extraction(task: Task, options: object) -> ExtractOptions:
    """The options of an extraction. Raises InvalidInput for what such a model cannot follow."""
    if task is not Task.EXTRACT or not isinstance(options, ExtractOptions):
        raise InvalidInput(f"This model reads images; it cannot {task}.")
    if options.output_schema is not None:
        raise InvalidInput("This model's answers have a form of their own; leave output_schema out.")
    if options.threshold is not None:
        raise InvalidInput("This model gives no scores that a threshold could be set on.")
    return options


def defaults_of(path: Path) -> Mapping[str, Any]:
    """generation_config.json of a model directory; empty where there is none."""
    file = path / "generation_config.json"
    return cast(Mapping[str, Any], json.loads(file.read_text("utf-8"))) if file.is_file() else {}


def pace_of(
    spec: ModelSpec, extra: Mapping[str, Any], context: int, prompt: int, defaults: Mapping[str, Any]
) -> Pace:
    """From the request, else the entry, else the model. `context` is how many tokens the decoder has
    places for, `prompt`
    how many of these are taken. Raises InvalidInput, InputTooLong."""
    left = context - prompt
    if left < 1:
        raise InputTooLong(
            f"the prompt has {prompt} tokens; the model takes {context}", length=prompt, max_length=context
        )
    most = asked.number_of(extra, "max_new_tokens", 1, 100_000)
    beams = asked.number_of(extra, "num_beams", 1, MOST_BEAMS)
    entry = spec.options
    return Pace(
        min(most or int(entry.get("max_new_tokens", MAX_NEW_TOKENS)), left),
        beams or int(entry.get("num_beams") or defaults.get("num_beams") or 1),
    )


def prepared(picture: Picture, prompt: Sequence[int], pace: Pace, what: Any) -> Prepared:
    """The cost holds the longest answer that may be written."""
    cost = picture.cost + TOKEN_PIXELS * (len(prompt) + pace.max_new_tokens) * pace.beams
    job = WriteJob(picture, tuple(prompt), pace, what)
    usage = Usage(images=1, input_tokens=len(prompt))
    return Prepared(cost, job, len(picture.image.data), usage)


def each(items: Sequence[Any], one: Callable[[Any, int], Prepared]) -> list[Prepared | EngineError]:
    """`one` of each item, or what is wrong with it."""
    found: list[Prepared | EngineError] = []
    for index, item in enumerate(items):
        try:
            found.append(one(item, index))
        except EngineError as error:
            found.append(error.at(index))
    return found
