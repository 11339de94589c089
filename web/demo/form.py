"""Draws a claim as a form that came off a scanner: a little turned, a little noisy, and no longer text."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from web.demo.claims import Claim, dollars
from web.demo.policy import INSURER

WIDTH, HEIGHT = 1000, 1040
MARGIN = 80
TEXT, HEADING, TITLE = 22, 25, 34
ROW = 44
NOISE = 6.0
"""Standard deviation of the scanner's noise, in grey levels of 255."""
TILT = 0.25
"""Degrees that the paper lay askew."""


def scan(claim: Claim) -> bytes:
    """The form as a JPEG. The same claim gives the same bytes."""
    page = drawn(claim).rotate(TILT, Image.Resampling.BICUBIC, fillcolor=255)
    grey = np.asarray(page, np.float32)
    noise = np.random.default_rng(1).normal(0.0, NOISE, grey.shape)
    out = io.BytesIO()
    Image.fromarray(np.clip(grey + noise, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=85)
    return out.getvalue()


def drawn(claim: Claim) -> Image.Image:
    page = Image.new("L", (WIDTH, HEIGHT), 255)
    draw = ImageDraw.Draw(page)
    _text(draw, MARGIN + 140, 50, "FLOOD INSURANCE CLAIM FORM", TITLE, bold=1)
    y = _section(draw, 135, "Section A. Policyholder")
    fields = [
        ("Insurer", INSURER),
        ("Name of insured", claim.insured),
        ("Policy number", claim.policy),
        ("Property address", claim.address),
        ("Date of loss", claim.lost_on),
    ]
    y = _table(draw, y, (260, 580), fields)
    y = _section(draw, y + 35, "Section B. What happened")
    for line in claim.story:
        _text(draw, MARGIN, y, line, TEXT)
        y += 32
    y = _section(draw, y + 20, "Section C. Losses")
    rows = [("Item", "Age", "Amount claimed")]
    rows += [(loss.item, f"{loss.age_years} years", dollars(loss.cents)) for loss in claim.losses]
    y = _table(draw, y, (280, 280, 280), [*rows, ("Total", "", claim.total)])
    _text(draw, MARGIN, y + 40, f"Signed: {claim.insured}", TEXT)
    _text(draw, MARGIN + 520, y + 40, f"Date: {claim.reported_on}", TEXT)
    return page


def _section(draw: ImageDraw.ImageDraw, y: int, title: str) -> int:
    """Where its first line stands."""
    _text(draw, MARGIN, y, title, HEADING, bold=1)
    return y + 50


def _table(draw: ImageDraw.ImageDraw, y: int, widths: Sequence[int], rows: Sequence[Sequence[str]]) -> int:
    """Where it ends."""
    for row in rows:
        x = MARGIN
        for width, text in zip(widths, row, strict=True):
            draw.rectangle((x, y, x + width, y + ROW), outline=0, width=2)
            _text(draw, x + 14, y + 9, text, TEXT)
            x += width
        y += ROW
    return y


def _text(draw: ImageDraw.ImageDraw, x: int, y: int, text: str, size: int, bold: int = 0) -> None:
    """In the typeface that comes with Pillow, so that every machine draws the same."""
    draw.text((x, y), text, 0, ImageFont.load_default(size), stroke_width=bold / 2)
