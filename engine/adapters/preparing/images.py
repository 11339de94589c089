"""Images from untrusted bytes: the header first, the pixels only when a batch needs them.

Whatever is wrong with the bytes, the caller hears InvalidInput. Only the formats named here are read,
each by its own decoder, chosen by the bytes; a sender that names another format is told so.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from engine.errors import InvalidInput
from engine.requests import Media

MAX_PIXELS = 100_000_000
MOST_OBLONG = 200
"""Sides that differ by more are a line, not a picture: scaled by its short side it would fill the memory."""

ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What EXIF's orientation asks for, in the terms of Pillow, which turns counter-clockwise."""

DECODERS: Mapping[bytes, type[ImageFile.ImageFile]] = {
    b"\xff\xd8\xff": JpegImagePlugin.JpegImageFile,
    b"\x89PNG\r\n\x1a\n": PngImagePlugin.PngImageFile,
    b"GIF8": GifImagePlugin.GifImageFile,
    b"BM": BmpImagePlugin.BmpImageFile,
    b"II*\0": TiffImagePlugin.TiffImageFile,
    b"MM\0*": TiffImagePlugin.TiffImageFile,
}
FORMATS = {"jpg": "JPEG", "jpeg": "JPEG", "tif": "TIFF"} | {
    name.lower(): name for name in ("PNG", "WEBP", "GIF", "BMP", "TIFF")
}

UNREADABLE = (
    Image.DecompressionBombError,
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    EOFError,
    RuntimeError,
    struct.error,
    zlib.error,
)
"""What Pillow's decoders raise on bytes that are not what they seem."""


@dataclass(frozen=True, slots=True)
class Header:
    """What an image says of itself: its size as it is meant to be seen, in pixels."""

    width: int
    height: int
    format: str

    @property
    def pixels(self) -> int:
        return self.width * self.height


def header(media: Media, max_pixels: int = MAX_PIXELS) -> Header:
    """Size and format, without decoding pixels. Raises InvalidInput when it is no image, or too large.

    A PNG's EXIF after its pixels is not seen here; `decode` sees it.
    """
    image = _open(media, max_pixels)
    width, height = image.size
    early = not isinstance(image, PngImagePlugin.PngImageFile) or "exif" in image.info
    if early and _orientation(image) >= 5:
        width, height = height, width
    return Header(width, height, str(image.format))


def decode(media: Media, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """The first frame in RGB, turned as EXIF says; transparent parts are on white. Raises InvalidInput."""
    image = _open(media, max_pixels)
    with _readable(media.data):
        image.load()
        turn = TURNS.get(_orientation(image))
        rgb = _rgb(image)
        return rgb.transpose(turn) if turn is not None else rgb


def _open(media: Media, max_pixels: int) -> ImageFile.ImageFile:
    """Only the header is read. Not Image.open: its own limit is a global of the process, and a warning."""
    if not media.data:
        raise InvalidInput("The image is empty: 0 bytes.")
    decoder = _decoder(media.data)
    if (named := _named(media)) not in ("", decoder.format):
        raise InvalidInput(f"The image is called {named} and is {decoder.format}.")
    with _readable(media.data):
        image = decoder(BytesIO(media.data))
    width, height = image.size
    if width * height > max_pixels:
        raise InvalidInput(
            f"The image has {width * height} pixels ({width} x {height}); the limit is {max_pixels}."
        )
    if max(width, height) > MOST_OBLONG * max(1, min(width, height)):
        raise InvalidInput(
            f"The image is a line of {width} x {height} pixels; one side may be {MOST_OBLONG} times as long."
        )
    return image


def _decoder(data: bytes) -> type[ImageFile.ImageFile]:
    for begins, decoder in DECODERS.items():
        if data.startswith(begins):
            return decoder
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return WebPImagePlugin.WebPImageFile
    raise InvalidInput(
        f"The {len(data)} bytes are no image that this server reads: JPEG, PNG, WebP, GIF, BMP or TIFF."
    )


def _named(media: Media) -> str:
    """What the sender calls the format, in Pillow's spelling; nothing when it is no format read here."""
    said = (media.format or "").lower().rpartition("/")[2].lstrip(".")
    return FORMATS.get(said, "")


@contextmanager
def _readable(data: bytes) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        reason = str(error)[:200] or type(error).__name__
        raise InvalidInput(f"The image ({len(data)} bytes) cannot be decoded: {reason}") from error


def _orientation(image: Image.Image) -> int:
    """1 to 8. Damaged EXIF says nothing; the picture itself may still be good."""
    try:
        found = image.getexif().get(ORIENTATION, 1)
    except UNREADABLE:
        return 1
    return found if isinstance(found, int) else 1


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers of unknown range")
    if image.mode.startswith("I"):
        # 16 bits a pixel: Pillow's own conversion would clip to 255 instead of scaling.
        wide = np.asarray(image).astype(np.float32).clip(0, 65535)
        return Image.fromarray(np.rint(wide / 257.0).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        clear = image.convert("RGBA")
        white = Image.new("RGBA", clear.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, clear).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")
