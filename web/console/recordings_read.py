"""What one recording's page shows of it: load over time, its peaks, and figures by model.

Called in a process of its own: a long recording takes seconds to read, and nobody else may wait for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.requests import ServiceClass
from replay.groups import groups_of
from replay.peaks import WINDOWS, peak, when
from replay.recording import Recording, read_database
from replay.report.figures import as_rows, rate_by_time, width_for
from replay.trace import BadTrace


@dataclass(frozen=True, slots=True)
class Targets:
    """p99 targets in seconds: a model's own, else its class's."""

    classes: Mapping[ServiceClass, float]
    own: Mapping[tuple[str, ServiceClass], float]

    def __call__(self, model: str, service_class: ServiceClass) -> float:
        return self.own.get((model, service_class), self.classes[service_class])


@dataclass(frozen=True, slots=True)
class Peak:
    window: float
    rate: float
    begin: float
    """Seconds from the first arrival."""


@dataclass(frozen=True, slots=True)
class Summary:
    requests: int
    span: float
    rate: float
    lost: int
    width: float
    """Seconds of each stretch that the timeline counts."""
    times: list[float]
    rates: list[float]
    peaks: list[Peak]
    rows: list[dict[str, Any]]
    """By model and class: what `replay.report.figures` says of them, with `items` and `cost`."""
    tasks: list[str]
    server: str
    """Of the snapshot: which devices it was on; empty where it does not say."""


def summary(database: Path, name: str, targets: Targets) -> Summary | str:
    """Why there is none, where there is none."""
    try:
        return _summary(read_database(database, name), targets)
    except BadTrace as error:
        return str(error)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return f"The recording {name} has rows that mean nothing ({type(error).__name__}); delete it."


def _summary(recording: Recording, targets: Targets) -> Summary:
    answers = recording.answers()
    span = max(answers.span, 1e-9)
    width = width_for(span, 240)
    times, rates = rate_by_time(answers.arrived, width)
    sums = _sums(recording)
    rows = [
        {**row, **sums.get((row["model"], row["service_class"]), {"items": 0, "cost": 0})}
        for row in as_rows(groups_of(answers, targets), span)
    ]
    return Summary(
        requests=len(recording),
        span=span,
        rate=len(recording) / span,
        lost=recording.lost,
        width=width,
        times=times,
        rates=rates,
        peaks=list(_peaks(answers.arrived, span)),
        rows=sorted(rows, key=lambda row: -row["requests"]),
        tasks=sorted(set(recording.requests["task"].tolist())),
        server=", ".join(str(device.get("name", "")) for device in recording.snapshot.get("devices", [])),
    )


def _peaks(arrived: np.ndarray[Any, np.dtype[np.float64]], span: float) -> Iterator[Peak]:
    for window in WINDOWS:
        if window <= max(span, 1.0):
            yield Peak(window, peak(arrived, window), when(arrived, window))


def _sums(recording: Recording) -> dict[tuple[str, str], dict[str, int]]:
    """Items and cost of each model and class."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    columns = [recording.requests[name].tolist() for name in ("model", "service_class", "items", "costs")]
    for model, service_class, items, costs in zip(*columns, strict=True):
        key = model, ServiceClass(service_class).name.lower()
        sums = found.setdefault(key, {"items": 0, "cost": 0})
        sums["items"] += items
        sums["cost"] += sum(int(cost) for cost in costs.split(",") if cost)
    return found
