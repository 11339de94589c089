"""Images on their way to a network: read by their headers first, decoded on the slot, batched by shape.

Only images of one shape run together: padding with a mask is not exact (the masked part reaches into the
rest through convolutions), and a neighbour must change nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel

from engine.adapters.preparing.images import decode, header
from engine.adapters.vision.processors import Processor, Seen
from engine.errors import EngineError, InvalidInput
from engine.requests import Media

SOURCE_PIXELS = 50
"""So many pixels of the image as sent take as long to decode as one that goes through the network."""
AT_ONCE = {"cpu": 8}
"""Images decoded and run together; more are no faster on a CPU, whose caches they leave."""
AT_ONCE_ELSEWHERE = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Picture:
    """One image as it was sent, and the pixels that it will have for the network."""

    image: Media
    index: int
    pixels: int
    source: int
    """Pixels as sent."""

    @property
    def cost(self) -> int:
        return self.pixels + self.source // SOURCE_PIXELS


@dataclass(frozen=True, slots=True)
class Look:
    """An image that was decoded: where its picture stands, and its size as it is meant to be seen."""

    place: int
    width: int
    height: int
    seen: Seen


Process = Callable[[Image.Image], Seen]
"""What the network takes, of an image in RGB."""
Forward = Callable[[Sequence[Look], Mapping[str, Tensor]], Sequence[T | EngineError]]
"""Runs the network on images of one shape; one answer for each, in order."""


def picture(processor: Processor, media: Media, index: int) -> Picture:
    """Reads the header only. Raises InvalidInput."""
    found = header(media)
    return Picture(media, index, processor.pixels(found.width, found.height), found.pixels)


def see(
    processor: Process,
    model: PreTrainedModel,
    pictures: Sequence[Picture],
    forward: Forward[T],
    alike: Callable[[int], Hashable] = lambda place: None,
) -> list[T | EngineError]:
    """What `forward` says of each picture. A damaged one has its error and disturbs no other.

    Only pictures that are also `alike` (by their place) run together.
    """
    answers: dict[int, T | EngineError] = {}
    at_once = AT_ONCE.get(model.device.type, AT_ONCE_ELSEWHERE)
    places = sorted(range(len(pictures)), key=lambda place: pictures[place].pixels)
    for start in range(0, len(places), at_once):
        groups: dict[Hashable, list[Look]] = defaultdict(list)
        for place in places[start : start + at_once]:
            look = _look(processor, pictures[place], place)
            if isinstance(look, EngineError):
                answers[place] = look
            else:
                shapes = tuple((name, values.shape) for name, values in look.seen.items())
                groups[shapes, alike(place)].append(look)
        for looks in groups.values():
            said = forward(looks, _stacked(looks, model))
            answers |= {look.place: answer for look, answer in zip(looks, said, strict=True)}
    return [answers[place] for place in range(len(pictures))]


def _look(processor: Process, sent: Picture, place: int) -> Look | EngineError:
    try:
        image = decode(sent.image)
    except InvalidInput as error:
        return error.at(sent.index)
    try:
        seen = processor(image)
    except ValueError as error:  # so narrow that nothing is left of it
        said = f"The image of {image.width} x {image.height} pixels cannot be resized for this model"
        return InvalidInput(f"{said}: {str(error)[:200]}").at(sent.index)
    return Look(place, image.width, image.height, seen)


def _stacked(looks: Sequence[Look], model: PreTrainedModel) -> dict[str, Tensor]:
    stacked = {}
    for name in looks[0].seen:
        values = torch.from_numpy(np.stack([look.seen[name] for look in looks])).to(model.device)
        stacked[name] = values.to(model.dtype) if values.is_floating_point() else values
    return stacked
