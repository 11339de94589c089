"""Figures of answers by model and class. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from replay.groups import Group, quantile
from replay.trace import Floats


def as_rows(found: list[Group], span: float) -> Iterator[dict[str, Any]]:
    """For a page or JSON: with what is served in time each second, and shares of the stages."""
    for group in found:
        whole = sum(group.stages.values())
        yield {
            **asdict(group),
            "model": group.unit,
            "service_class": group.service_class.name.lower(),
            "judged": group.judged,
            "holds": group.holds,
            "goodput": group.within * group.requests / max(span, 1e-9),
            "rate": group.requests / max(span, 1e-9),
            "shares": {name: spent / whole if whole else 0.0 for name, spent in group.stages.items()},
        }


def by_time(arrived: Floats, latency: Floats, width: float, share: float) -> tuple[list[float], list[float]]:
    """Middles of stretches of time, and that quantile of the latency of what arrived in each."""
    if not len(arrived):
        return [], []
    bins = np.floor(arrived / width).astype(np.int64)
    middles, values = [], []
    for each in np.unique(bins).tolist():
        inside = latency[bins == each]
        value = quantile(inside, share)
        if math.isfinite(value):
            middles.append((each + 0.5) * width)
            values.append(value)
    return middles, values


def rate_by_time(arrived: Floats, width: float) -> tuple[list[float], list[float]]:
    """Middles of stretches of time, and requests a second in each."""
    if not len(arrived):
        return [], []
    counts = np.bincount(np.floor(arrived / width).astype(np.int64))
    return [(n + 0.5) * width for n in range(len(counts))], (counts / width).tolist()


def width_for(span: float, most: int = 120) -> float:
    """Of stretches of time, so that there are at most so many: a second, two, five, ten..."""
    for power in range(7):
        for step in (1, 2, 5):
            if span / (step * 10**power) <= most:
                return float(step * 10**power)
    return span / most
