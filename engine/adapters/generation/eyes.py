"""Images as a language model is shown them: decoded, bounded, and with their places in a prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.adapters.generation.kinds import Kind, See
from engine.adapters.generation.tower import Shown, Tower
from engine.adapters.preparing.images import decode
from engine.errors import InputTooLong, InvalidInput
from engine.requests import Media


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one prompt."""

    images: int
    tokens: int
    """Those of words and of the answer included."""
    kv_tokens: float
    """What the features of one image token take, in tokens of the KV."""


class Eyes:
    """One model's way of being shown images. May be used by several threads at once."""

    def __init__(self, tower: Tower, kind: Kind, token: int, bounds: Bounds) -> None:
        """`token`: the id of its image token."""
        self._tower = tower
        self._kind = kind
        self._token = token
        self._bounds = bounds

    def see(self, images: Sequence[Media]) -> list[Shown]:
        """Decodes them, and makes them what the vision tower takes. Raises InvalidInput, InputTooLong."""
        bounds = self._bounds
        if len(images) > bounds.images:
            raise InvalidInput(f"the prompt has {len(images)} images; at most {bounds.images} are taken")
        kind = self._kind
        see = kind.among if kind.among and len(images) > 1 else kind.see
        shown: list[Shown] = []
        tokens = 0
        for at, image in enumerate(images):
            shown.append(self._one(see, image, at))
            tokens += shown[-1].tokens
            if tokens >= bounds.tokens:
                raise InputTooLong(
                    f"the first {at + 1} images take {tokens} tokens; the model takes {bounds.tokens}, text "
                    "and answer included. Send fewer, or smaller ones",
                    length=tokens,
                    max_length=bounds.tokens,
                )
        return shown

    def check(self, ids: Sequence[int], shown: Sequence[Shown]) -> None:
        """Raises InvalidInput unless every image has its place in the prompt."""
        wanted, there = sum(each.tokens for each in shown), sum(token == self._token for token in ids)
        if wanted != there:
            raise InvalidInput(
                f"the images take {wanted} tokens and the prompt has places for {there}; tokens that stand "
                "for images cannot be sent by themselves"
            )

    def kv_tokens(self, shown: Sequence[Shown]) -> int:
        """What the features of images take until they are read, in tokens of the KV."""
        return math.ceil(self._bounds.kv_tokens * sum(each.tokens for each in shown))

    def _one(self, see: See, media: Media, at: int) -> Shown:
        try:
            return see(self._tower, decode(media))
        except InvalidInput as error:
            raise InvalidInput(f"image {at}: {error.message}") from error
        except ValueError as error:  # a shape that the processor refuses
            raise InvalidInput(f"image {at} cannot be shown to this model: {str(error)[:200]}") from error
