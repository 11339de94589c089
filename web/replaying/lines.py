"""How far a replay is, for a program that watches it: what was sent and answered, and latency so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from replay.groups import quantile
from replay.replaying.log import Log
from replay.replaying.wanted import Chosen
from replay.report.figures import width_for
from replay.trace import Floats
from web.cli import supervised


@contextmanager
def shown(picked: Chosen) -> Iterator[Callable[[Log], None]]:
    """What to call with the log now and then."""

    def told(log: Log) -> None:
        supervised.tell(progress(log, picked))

    yield told


def progress(log: Log, picked: Chosen) -> dict[str, Any]:
    """Plain data. Of each stretch of time p50 and p99 of what was answered, beside what was recorded."""
    at, span, lag = log.looks[-1][0] if log.looks else 0.0, picked.trace.span, log.lag
    width = width_for(span)
    bins = np.floor(picked.trace.arrived / width).astype(np.int64)
    took = log.done - log.intended
    good = np.array([each is not None and each.code in ("ok", "degraded") for each in log.outcomes])
    took = np.where(good, took, np.nan)
    known = np.where(picked.latency > 0, picked.latency, np.nan)
    columns: Mapping[str, list[float | None]] = {
        name: [] for name in ("x", "p50", "p99", "was_p50", "was_p99")
    }
    for each in range(int(max(0.0, at) / width) + 1):
        rows = np.flatnonzero(bins == each)
        if not np.isfinite(took[rows]).any():
            continue
        columns["x"].append(round((each + 0.5) * width, 3))
        for name, seconds in (("", took), ("was_", known)):
            found = seconds[rows][np.isfinite(seconds[rows])]
            for label, share in (("p50", 0.5), ("p99", 0.99)):
                columns[name + label].append(_quantile(found, share))
    return {
        "at": round(min(max(at, 0.0), span), 3),
        "span": round(span, 3),
        "sent": len(lag),
        "requests": len(log.trace),
        "answered": log.answered,
        "failed": int(log.answered - good.sum()),
        "lag_p99": float(np.quantile(lag, 0.99)) if len(lag) else None,
        "latency": columns,
    }


def _quantile(seconds: Floats, share: float) -> float | None:
    value = quantile(seconds, share) if len(seconds) else math.inf
    return round(value, 6) if math.isfinite(value) else None
