"""Images in a conversation: base64 in data URLs. Nothing is fetched for a client."""

from __future__ import annotations

import binascii
from base64 import b64decode

from msgspec import Struct

from engine.errors import InvalidInput
from engine.requests import Media
from web.wire.bodies import MAX_IMAGES, check_image
from web.wire.openai.complaints import wrong

SHOWN = ("image_url", "input_image")
"""Types of the parts that hold one."""
_START, _BASE64 = "data:", ";base64"


class ImageUrl(Struct):
    """`detail` is for other servers: an entry says how large images may be."""

    url: str


def read(found: ImageUrl | str | None, where: str, name: str) -> Media:
    """`name` is the parameter in complaints. Raises InvalidInput, ImageTooLarge."""
    url = found.url if isinstance(found, ImageUrl) else found
    if not url:
        raise wrong(name, f"{where} has no image_url; send the image as a data URL.")
    if url[: len(_START)].lower() != _START:
        scheme = url.partition(":")[0][:20]
        raise wrong(
            name,
            f"{where} is a URL of {scheme!r}; this server fetches nothing. Send the image itself: "
            "data:image/png;base64,...",
        )
    kind, comma, data = url[len(_START) :].partition(",")
    kind = kind.lower()
    if not comma or not kind.endswith(_BASE64) or not kind.startswith("image/"):
        raise wrong(name, f"{where} is no image in base64; write data:image/png;base64,...")
    check_image(len(data) * 3 // 4 - data[-2:].count("="), where, name)
    try:
        return Media(b64decode(data, validate=True), kind.removesuffix(_BASE64).partition(";")[0])
    except (binascii.Error, ValueError):
        raise wrong(name, f"{where} is no base64.") from None


def too_many(name: str) -> InvalidInput:
    return wrong(name, f"{name} has more than {MAX_IMAGES} images.")
