"""How much arrived at once: the highest rate over a sliding window, for several windows."""

from __future__ import annotations

import numpy as np

from replay.trace import Floats

WINDOWS = (1.0, 10.0, 60.0, 300.0, 900.0)
"""Seconds. A peak means nothing without its window: the same hour may have 77 in one second and 11 a
second over a quarter of an hour."""

DECISIVE = 60.0
"""The window that redundancy is measured by."""


def peak(arrived: Floats, window: float) -> float:
    """Most arrivals in any `window` seconds, per second. The window slides: it may begin anywhere."""
    if not len(arrived):
        return 0.0
    inside = np.searchsorted(arrived, arrived + window, side="left") - np.arange(len(arrived))
    return float(inside.max()) / window


def peaks(arrived: Floats) -> dict[float, float]:
    """Requests per second by window."""
    return {window: peak(arrived, window) for window in WINDOWS}


def when(arrived: Floats, window: float) -> float:
    """When the busiest `window` seconds begin."""
    inside = np.searchsorted(arrived, arrived + window, side="left") - np.arange(len(arrived))
    return float(arrived[int(inside.argmax())])
