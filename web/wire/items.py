"""Items and media as they come over the wire, and the engine's own in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Raw, Struct

from engine.errors import InputTooLong, InvalidInput
from engine.requests import Item, Media
from web.wire import free
from web.wire.forms import Form

MAX_METADATA_BYTES = 4 * 2**20
"""Of all items of one request together: as Python values they take many times as much."""
MAX_IMAGES = 256
"""Of one item: an empty one has seven bytes in msgpack, and a hundred in memory."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the settings allow in one request."""

    items: int
    item_text_bytes: int


class MediaBody(Struct, gc=False):
    data: bytes
    format: str | None = None
    sample_rate: int | None = None

    def media(self) -> Media:
        return Media(self.data, self.format, self.sample_rate)


class ItemBody(Struct, gc=False):
    id: str | None = None
    text: str | None = None
    images: Annotated[list[MediaBody], Meta(max_length=MAX_IMAGES)] | None = None
    audio: MediaBody | None = None
    video: MediaBody | None = None
    document: MediaBody | None = None
    metadata: Raw = free.UNSENT
    multivector: Raw = free.UNSENT
    """For the client's own scoring. Nobody reads it here; harmful arrays in it are refused all the same."""

    def item(self, form: Form, limits: Limits, where: str) -> Item:
        """Raises InvalidInput when there is nothing in it, InputTooLong when it is too large."""
        if self.text is None and not (self.images or self.audio or self.video or self.document):
            raise InvalidInput(f"{where} is empty; give it text, images, audio, video or a document.")
        taken = _utf8_bytes(self.text, limits.item_text_bytes) + free.size(self.metadata)
        if taken > limits.item_text_bytes:
            raise InputTooLong(
                f"{where} has {taken} bytes of text and metadata; "
                f"at most {limits.item_text_bytes} are taken (max_item_text_bytes). Cut it into several."
            )
        if form is Form.MSGPACK and free.given(self.multivector):  # JSON has no arrays
            free.value(self.multivector, form, f"{where}.multivector", limits.item_text_bytes)
        return Item(
            id=self.id,
            text=self.text,
            images=tuple(image.media() for image in self.images or ()),
            audio=_media(self.audio),
            video=_media(self.video),
            document=_media(self.document),
            metadata=free.mapping(self.metadata, form, f"{where}.metadata", limits.item_text_bytes),
        )


def _media(body: MediaBody | None) -> Media | None:
    return body.media() if body else None


def items(bodies: Sequence[ItemBody], form: Form, limits: Limits) -> tuple[Item, ...]:
    """The engine's items. Every error carries the index of its item."""
    if not bodies:
        raise InvalidInput("items is empty; send at least one.")
    if len(bodies) > limits.items:
        said = f"items has {len(bodies)} entries; at most {limits.items} are taken in a request (max_items)."
        raise InvalidInput(said)
    if (size := sum(free.size(body.metadata) for body in bodies)) > MAX_METADATA_BYTES:
        said = f"The metadata of all items has {size} bytes; at most {MAX_METADATA_BYTES} are taken."
        raise InvalidInput(said)
    free.within(sum([free.containers(body.metadata, form) for body in bodies]), "The metadata of all items")
    made: list[Item] = []
    for index, body in enumerate(bodies):
        try:
            made.append(body.item(form, limits, f"items[{index}]"))
        except (InvalidInput, InputTooLong) as error:
            raise error.at(index) from None
    return tuple(made)


def _utf8_bytes(text: str | None, limit: int) -> int:
    """Its size, counted only where it may matter."""
    if text is None or len(text) * 4 <= limit:
        return 0
    return len(text.encode())
