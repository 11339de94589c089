"""Boxes that a network gave, as answers: pixels of the upright image, x1, y1, x2, y2, inside it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from engine.adapters.vision.pictures import Look
from engine.errors import NotFinite
from engine.requests import Detection, Extracted

Box = tuple[float, float, float, float]


def readable(out: Any) -> SimpleNamespace:
    """Scores and boxes of a detector, in float32 on the CPU, where processors read them."""
    return SimpleNamespace(logits=out.logits.float().cpu(), pred_boxes=out.pred_boxes.float().cpu())


def known(logits: Tensor, boxes: Tensor) -> bool:
    """Whether a network knows what it sees. Processors drop what is NaN; -inf stands for no word."""
    return not bool(logits.isnan().any()) and bool(boxes.isfinite().all())


def detections(
    names: Sequence[str | None], scores: Tensor, boxes: Tensor, look: Look, threshold: float
) -> Extracted | NotFinite:
    """What was found and asked for, most certain first; a name is None where nobody asked for it."""
    if not (scores.isfinite().all() and boxes.isfinite().all()):
        return NotFinite()
    found = [
        Detection(name, score, inside(box, look))
        for name, score, box in zip(names, scores.tolist(), boxes.tolist(), strict=True)
        if name is not None and score >= threshold
    ]
    return Extracted(objects=tuple(sorted(found, key=lambda thing: -thing.score)))


def inside(box: Sequence[float], look: Look) -> Box:
    """`box` without what lies outside of the image."""
    left, top, right, bottom = map(float, box)
    width, height = float(look.width), float(look.height)
    return (
        min(max(left, 0.0), width),
        min(max(top, 0.0), height),
        min(max(right, 0.0), width),
        min(max(bottom, 0.0), height),
    )
