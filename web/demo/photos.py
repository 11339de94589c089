"""Photographs for the demo, out of the scikit-image wheel of the starter pack, which is never imported."""

from __future__ import annotations

import io
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from PIL import Image, ImageOps

from web.demo.failing import DemoFailed

CARRIER = "scikit-image"

FILED = {
    "a motorcycle": "motorcycle_right",
    "crockery": "coffee",
    "a cat": "chelsea",
    "a person": "astronaut",
    "a document": "page",
}
"""What the insurer has on file: what each photograph shows -> its name in the wheel."""

CLAIMED = {"motorcycle": "motorcycle_left", "crockery": "coffee"}
"""What policyholders sent."""


def filed() -> dict[str, bytes]:
    return {shows: _png(_opened(name)) for shows, name in FILED.items()}


def claimed(name: str) -> bytes:
    """Not the one on file: the other eye of a stereo pair, or mirrored and from nearer."""
    picture = _opened(CLAIMED[name])
    if CLAIMED[name] in FILED.values():
        width, height = picture.size
        picture = ImageOps.mirror(picture.crop((width // 10, height // 10, width, height)))
    return _png(picture)


def _opened(name: str) -> Image.Image:
    try:
        path = Path(str(distribution(CARRIER).locate_file(f"skimage/data/{name}.png")))
        return Image.open(path).convert("RGB")
    except (PackageNotFoundError, FileNotFoundError):
        raise DemoFailed(
            f"The photographs are not here: {CARRIER} carries them, and is not installed. "
            "`make setup` installs the starter pack."
        ) from None


def _png(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()
