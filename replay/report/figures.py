"""Figures of answers by model and class. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from engine.requests import ServiceClass
from replay.answers import Answers
from replay.groups import REFUSED, Group, quantile
from replay.steps import TAIL
from replay.trace import Floats, Ints

Target = Callable[[str, ServiceClass], float]
"""The p99 target of a model's class, in seconds."""

STAGES = ("prepare", "queue", "load", "run")


def rows_by_group(answers: Answers, since: float = 0.0) -> dict[tuple[str, ServiceClass], Ints]:
    """Rows of each model and class that arrived at `since` or later."""
    counted = np.flatnonzero(answers.arrived >= since)
    key = answers.model[counted].astype(np.int64) * 8 + answers.service_class[counted]
    found = {}
    for each in np.unique(key).tolist():
        model, service_class = divmod(each, 8)
        found[answers.models[model], ServiceClass(service_class)] = counted[key == each]
    return found


def groups(answers: Answers, target: Target, since: float = 0.0) -> list[Group]:
    """The one farthest over its target first; those too few to be judged last."""
    found = [_group(answers, rows, *key, target(*key)) for key, rows in rows_by_group(answers, since).items()]
    return sorted(found, key=lambda group: (not group.judged, -group.excess, group.name))


def _group(answers: Answers, rows: Ints, model: str, service_class: ServiceClass, target: float) -> Group:
    latency = answers.latency[rows]
    answered = rows[np.isfinite(latency)]
    late = answered[answers.latency[answered] > target]
    spent = _spent(answers, late if len(late) else answered)
    stage = max(spent, key=lambda name: spent[name])
    if len(rows) - len(answered) > len(late):
        stage = REFUSED
    return Group(
        unit=model,
        service_class=service_class,
        target=target,
        requests=len(rows),
        p50=quantile(latency, 0.5),
        p95=quantile(latency, 0.95),
        p99=quantile(latency, TAIL),
        within=float((latency <= target).mean()),
        refused=1 - len(answered) / len(rows),
        degraded=float(answers.ended("degraded")[rows].mean()),
        cold=float(answers.cold[rows].mean()),
        stages=_spent(answers, answered),
        stage=stage,
    )


def _spent(answers: Answers, rows: Ints) -> dict[str, float]:
    """Mean seconds of each stage; 0 where nobody said."""
    found = {}
    for name in STAGES:
        told = getattr(answers, name)[rows]
        told = told[np.isfinite(told)]
        found[name] = float(told.mean()) if len(told) else 0.0
    return found


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
