"""Pictures and documents of a given size that hold nothing worth reading."""

from __future__ import annotations

import io
import math
from functools import lru_cache

import numpy as np
from PIL import Image

LARGEST_PIXELS = 40_000_000


@lru_cache(maxsize=64)
def picture(pixels: int) -> bytes:
    """A JPEG of about so many pixels, with enough in it to take a decoder's time."""
    side = max(8, round(math.sqrt(min(pixels, LARGEST_PIXELS))))
    rng = np.random.default_rng(side)
    coarse = rng.integers(0, 255, (max(1, side // 8), max(1, side // 8), 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(coarse).resize((side, side), Image.Resampling.BILINEAR).save(out, "JPEG", quality=85)
    return out.getvalue()


@lru_cache(maxsize=64)
def document(pages: int) -> bytes:
    """A PDF of so many pages, each with a few lines of text."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    numbers = [4 + 2 * page for page in range(pages)]
    kids = " ".join(f"{number} 0 R" for number in numbers)
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {pages} >>".encode())
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for page, number in enumerate(numbers):
        lines = "".join(
            f"BT /F1 11 Tf 72 {720 - 16 * line} Td (Line {line} of page {page + 1}.) Tj ET\n"
            for line in range(30)
        )
        resources = "/Resources << /Font << /F1 3 0 R >> >>"
        box = "/MediaBox [0 0 612 792]"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R {box} {resources} /Contents {number + 1} 0 R >>".encode()
        )
        objects.append(f"<< /Length {len(lines)} >>\nstream\n{lines}endstream".encode())
    return _pdf(objects)


def _pdf(objects: list[bytes]) -> bytes:
    out = io.BytesIO()
    out.write(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, start=1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n".encode() + body + b"\nendobj\n")
    table = out.tell()
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    out.write(b"".join(f"{place:010} 00000 n \n".encode() for place in places))
    out.write(f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n".encode())
    return out.getvalue()
