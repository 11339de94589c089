"""Texts and images as the messages that a Qwen3-VL-Embedding makes one vector of.

arXiv 2601.04720, 3.1: the instruction is the system's message, what is encoded is the user's, and the vector
is that of the last token before an answer would begin.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engine.adapters.family import Prepared
from engine.adapters.forward import weights
from engine.adapters.forward.packed import Ids
from engine.adapters.preparing.kinds import sigmoid
from engine.adapters.preparing.tokens import Room, TextTokenizer, text_of
from engine.adapters.vision.pictures import SOURCE_PIXELS, Picture, picture
from engine.adapters.vision.processors import Processor, Seen, reference_of
from engine.adapters.vision.vectors import Wanted
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import EncodeOptions, Item, Media, Options, Overflow, ScoreOptions, Task, Usage

KIND = "qwen3_vl"
INSTRUCTION = "Represent the user's input."
SYSTEM, USER = "<|im_start|>system\n", "<|im_end|>\n<|im_start|>user\n"
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
END = "<|im_end|>\n<|im_start|>assistant\n"
LONGEST, MOST_IMAGES = 8192, 8
"""Tokens and images of one input, where the entry says nothing else."""
FEWEST_TOKENS = 4
"""Of an image, as the published scripts bound it where they bound its most."""


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """`ids` hold as many image tokens as the pictures will have."""

    ids: Ids
    pictures: tuple[Picture, ...]
    cut: bool


@dataclass(frozen=True, slots=True)
class MessageJob:
    """The vector of one input; of two, how alike they are."""

    parts: tuple[Message, ...]
    wanted: Wanted
    sigmoid: bool = False


class Shown:
    """Images as the directory's own processor makes them, within the entry's bound. Threads may share it."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._images = reference_of(path)
        self._patch = int(self._images.patch_size) ** 2
        self.pixels_of_a_token = self._patch * int(self._images.merge_size) ** 2
        self._bounds: dict[str, Any] = {}
        if most := spec.options.get("max_pixels"):
            least = FEWEST_TOKENS * self.pixels_of_a_token
            self._bounds = {"min_pixels": min(least, int(most)), "max_pixels": int(most)}
        self.pictures = Processor(self.see, self._pixels, self._images)

    def see(self, image: Image.Image) -> Seen:
        """`pixel_values` (patches, numbers) and `image_grid_thw` (3,)."""
        made = self._images(images=[image], return_tensors="np", **self._bounds)
        return {
            "pixel_values": np.asarray(made["pixel_values"]),
            "image_grid_thw": np.asarray(made["image_grid_thw"])[0],
        }

    def _pixels(self, width: int, height: int) -> int:
        """Raises InvalidInput for a shape that the processor refuses."""
        try:
            return int(self._images.get_number_of_image_patches(height, width, self._bounds)) * self._patch
        except ValueError as error:
            raise InvalidInput(f"an image of {width} x {height} pixels: {str(error)[:200]}") from error


class Writer:
    """Writes messages, and reads the headers of their images. Threads may share it."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        self._shown = Shown(spec, path)
        self.tokenizer = TextTokenizer(path)
        self._pad = int(weights.model_config(path)["image_token_id"])
        (self._end,) = self.tokenizer.ids([END])

    def message(
        self, lead: str, text: str, images: Sequence[Media], index: int | None, overflow: Overflow
    ) -> Message:
        """`lead` holds the places of the images; of `text`, which follows it, the end may be lost.

        Raises InvalidInput, InputTooLong.
        """
        most = int(self._spec.options.get("max_images", MOST_IMAGES))
        if len(images) > most:
            raise InvalidInput(f"there are {len(images)} images; at most {most} are taken")
        pictures = tuple(picture(self._shown.pictures, image, index or 0) for image in images)
        tokens = [each.pixels // self._shown.pixels_of_a_token for each in pictures]
        ids, cut = self._fitted(lead, text, sum(tokens) - len(tokens), index, overflow)
        places = ids == self._pad
        if int(places.sum()) != len(tokens):
            raise InvalidInput("tokens that stand for images cannot be sent by themselves", item=index)
        times = np.ones(len(ids), np.int64)
        times[places] = tokens
        return Message(np.concatenate([np.repeat(ids, times), self._end]), pictures, cut)

    def _fitted(
        self, lead: str, text: str, images: int, index: int | None, overflow: Overflow
    ) -> tuple[Ids, bool]:
        """`images`: tokens that come to it."""
        room = Room.of(self._spec, self._spec.max_tokens or LONGEST, overflow)
        (before,), (ids,) = self.tokenizer.ids([lead]), self.tokenizer.ids([lead + room.clip(text)])
        left = room.tokens - images - len(self._end)
        if left < len(before) + bool(text):
            raise InputTooLong(
                f"images and what is always said take {len(before) + images} tokens and leave no room for a "
                f"text; the model takes {room.tokens} for all",
                length=len(before) + images,
                max_length=room.tokens,
            )
        return room.fit(ids, text, left, index)

    def prepared(self, job: object, counted: Sequence[Message]) -> Prepared:
        """`counted`: what it costs."""
        usage, nbytes, cost = Usage(), 0, 0
        for part in counted:
            sources = sum(each.source for each in part.pictures)
            usage += Usage(input_tokens=len(part.ids), images=len(part.pictures), truncated=int(part.cut))
            nbytes += part.ids.nbytes + sum(len(each.image.data) for each in part.pictures)
            cost += len(part.ids) + sources // SOURCE_PIXELS // self._shown.pixels_of_a_token
        return Prepared(cost, job, nbytes, usage)


class MessagePreparer:
    """Says early what the model cannot do."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        self._writer = Writer(spec, path)
        self.cutter = self._writer.tokenizer.cutter

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        """The query of a score is read once, and counts for the first item."""
        if isinstance(options, EncodeOptions):
            wanted = Wanted.of(self._spec, options, instruction=True)
            role = "query" if options.is_query else "document"
            asked = options.instruction
            return self._each(items, role, asked, options.overflow, lambda each: MessageJob((each,), wanted))
        assert isinstance(options, ScoreOptions), "the router sends encode and score requests only"
        query = self._message(options.query, None, "query", options.instruction, options.overflow)
        unit, chances = Wanted(True, None, "float32"), sigmoid(self._spec, options)
        return self._each(
            items, "document", None, options.overflow, lambda each: MessageJob((query, each), unit, chances)
        )

    def _each(
        self,
        items: Sequence[Item],
        role: str,
        instruction: str | None,
        overflow: Overflow,
        job: Callable[[Message], MessageJob],
    ) -> list[Prepared | EngineError]:
        found: list[Prepared | EngineError] = []
        counted = False
        for index, item in enumerate(items):
            try:
                made = job(self._message(item, index, role, instruction, overflow))
            except EngineError as error:
                found.append(error.at(index))
                continue
            found.append(self._writer.prepared(made, made.parts[-1:] if counted else made.parts))
            counted = True
        return found

    def _message(
        self, item: Item, index: int | None, role: str, instruction: str | None, overflow: Overflow
    ) -> Message:
        """Raises InvalidInput, InputTooLong."""
        told = instruction if instruction is not None else self._spec.prompts.get(role, INSTRUCTION)
        lead = f"{SYSTEM}{_sentence(told)}{USER}{IMAGE * len(item.images)}"
        return self._writer.message(lead, text_and_images(item, index), item.images, index, overflow)


def text_and_images(item: Item, index: int | None) -> str:
    """The text of an item that may hold images too. Raises InvalidInput where it holds neither, or something
    else besides."""
    if item.images and item.text is None and not (item.audio or item.video or item.document or item.tokens):
        return ""
    bare = Item(
        text=item.text, tokens=item.tokens, audio=item.audio, video=item.video, document=item.document
    )
    return text_of(bare, index)


def _sentence(instruction: str) -> str:
    """With a full stop, where nothing ends it."""
    instruction = instruction.strip()
    if instruction and not unicodedata.category(instruction[-1]).startswith("P"):
        return f"{instruction}."
    return instruction
