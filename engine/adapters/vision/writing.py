"""Models that look at an image and write an answer to its end: an encoder for the image, a decoder for text.

What is told here is for both sides: how jobs are prepared and costed, how families put prompts and read
answers. Only jobs whose prompts have one length run together, because padding would move the positions of
the others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from torch import Tensor

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward import weights
from engine.adapters.vision import asked
from engine.adapters.vision.pictures import Look, Picture
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import ExtractOptions, Output, Task, Usage

BASE_BYTES = 64 << 20
WORKSPACE_PER_COST = 160.0
"""Swin and DaViT hold 128 channels of float32 at a quarter of an image's size, 16 times: 128 bytes a pixel;
what batches really take is learned."""
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


def footprint(spec: ModelSpec, path: Path) -> Footprint:
    """`kv_bytes_per_token` is what a cost of 1 holds between quanta: a pixel's share of what the decoder
    keeps of an image, or a written token's share of its own."""
    dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, path)
    config = weights.model_config(path)
    decoder = config.get("decoder") or config["text_config"]
    layers = int(decoder.get("decoder_layers") or decoder.get("n_layer") or decoder["num_hidden_layers"])
    width = int(decoder.get("d_model") or decoder.get("n_embd") or decoder["hidden_size"])
    token = 2 * layers * width * dtype.itemsize
    seen = (token + width * dtype.itemsize) / _pixels_per_token(
        config.get("encoder") or config["vision_config"]
    )
    return Footprint(
        weights.weights_bytes(path, dtype),
        BASE_BYTES,
        WORKSPACE_PER_COST,
        kv_bytes_per_token=math.ceil(max(token / TOKEN_PIXELS, seen)),
    )


def _pixels_per_token(vision: Mapping[str, Any]) -> int:
    """Of the image, in what the decoder looks at."""
    strides = vision.get("patch_stride")
    if isinstance(strides, list):
        return math.prod(strides) ** 2
    size = int(vision.get("patch_size", 16))
    return int((size * 2 ** (len(vision.get("depths") or [0]) - 1)) ** 2)


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
    """The cost holds the longest answer that may be written. Each beam looks at the image by itself."""
    text = TOKEN_PIXELS * (len(prompt) + pace.max_new_tokens)
    job = WriteJob(picture, tuple(prompt), pace, what)
    return Prepared(
        picture.cost + text * pace.beams,
        job,
        len(picture.image.data),
        Usage(images=1, input_tokens=len(prompt)),
        kv_tokens=(picture.cost + text) * pace.beams + pace.max_new_tokens,
    )


def each(items: Sequence[Any], one: Callable[[Any, int], Prepared]) -> list[Prepared | EngineError]:
    """`one` of each item, or what is wrong with it."""
    found: list[Prepared | EngineError] = []
    for index, item in enumerate(items):
        try:
            found.append(one(item, index))
        except EngineError as error:
            found.append(error.at(index))
    return found
