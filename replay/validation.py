"""How far the twin may be believed: what it said against what the real engine did. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import numpy as np

from replay.answers import Answers
from replay.trace import Floats

GATES: Mapping[str, float] = {"p50": 0.10, "p95": 0.15, "p99": 0.25, "capacity": 0.10}
"""Largest error on one machine that counts as right; never less than twice the noise of the machine."""

LEAST_TAU = 0.8

STALE_SECONDS = 30 * 86400.0

ALL = "all"


class Badge(StrEnum):
    VALIDATED = "validated"
    NEVER = "never validated"  # for no server with these readings
    FAILED = "failed"
    STALE = "stale"  # long ago
    EXTRAPOLATED = "extrapolated"  # sizes or cards that nobody has measured


@dataclass(frozen=True, slots=True)
class Measured:
    """One run, real or in the twin."""

    answers: Answers
    swaps: Mapping[str, int] = field(default_factory=dict)
    """Loads of each model."""
    peaks: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each model's weights, where they were on a device."""
    most_bytes: int = 0
    """That all devices together held at once, as far as was looked at."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Of one model, or of all. Signed shares of what was real: 0.1 says that the twin was a tenth high."""

    model: str
    requests: int
    p50: float
    p95: float
    p99: float
    throughput: float
    answered: float
    """Share answered: twin less real."""
    swaps: tuple[int, int]
    """Real, and in the twin."""
    peak_bytes: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tried:
    """One configuration: p95 in seconds and loads, on the real engine and in the twin."""

    name: str
    real: float
    twin: float
    loads: tuple[int, int]
    lag: float
    """p99 of the sending, in seconds."""


@dataclass(frozen=True, slots=True)
class Validation:
    """Stored beside plans; found again by the readings that its twin was made of."""

    at: float
    """Seconds since the epoch."""
    curves: str
    engine: str
    devices: tuple[str, ...]
    trace: str
    errors: tuple[Errors, ...]
    noise: tuple[Errors, ...]
    """The same for two real runs."""
    capacity_error: float | None = None
    """Of what is served at most when everything comes at once."""
    tau: float | None = None
    """Kendall's, over configurations whose p95 differ by more than two real runs of the same do."""
    tried: tuple[Tried, ...] = ()

    @property
    def missed(self) -> list[str]:
        """Gates that are not met, in words."""
        return [*_missed_quantiles(self), *_missed_ranks(self)]

    def save(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.curves}.json"
        path.write_text(json.dumps(asdict(self), indent=2))
        return path

    @classmethod
    def load(cls, folder: Path, curves: str) -> Self | None:
        """The last one of a twin made of these readings."""
        path = folder / f"{curves}.json"
        if not path.is_file():
            return None
        told: dict[str, Any] = json.loads(path.read_text())
        for name in ("errors", "noise"):
            told[name] = tuple(
                Errors(**{**e, "swaps": tuple(e["swaps"]), "peak_bytes": tuple(e["peak_bytes"])})
                for e in told[name]
            )
        tried = tuple(Tried(**{**t, "loads": tuple(t["loads"])}) for t in told.get("tried", ()))
        return cls(**{**told, "devices": tuple(told["devices"]), "tried": tried})


def errors(real: Measured, *twins: Measured) -> list[Errors]:
    """Of all requests together first, then of each model that both were asked for. Of several runs of the
    twin, each with luck of its own, the one in the middle counts, figure by figure."""
    asked = twins[0].answers.models
    return [_errors(m, real, twins) for m in (ALL, *(m for m in real.answers.models if m in asked))]


def _errors(model: str, real: Measured, twins: Sequence[Measured]) -> Errors:
    was = _rows(real.answers, model)
    said = [_rows(twin.answers, model) for twin in twins]

    def off(quantile: float) -> float:
        return middle([_quantile(each, quantile) for each in said]) / _quantile(was, quantile) - 1

    rates = [_rate(twin.answers, each) for twin, each in zip(twins, said, strict=True)]
    answered = middle([float(np.isfinite(each).mean()) for each in said])
    return Errors(
        model=model,
        requests=len(was),
        p50=off(0.5),
        p95=off(0.95),
        p99=off(0.99),
        throughput=middle(rates) / _rate(real.answers, was) - 1,
        answered=answered - float(np.isfinite(was).mean()),
        swaps=(_of(real.swaps, model), round(middle([_of(twin.swaps, model) for twin in twins]))),
        peak_bytes=(_peak(real, model), round(middle([_peak(twin, model) for twin in twins]))),
    )


def middle(values: Sequence[float]) -> float:
    return float(np.median(values))


def p95(run: Measured) -> float:
    """Of what was answered, in seconds."""
    return _quantile(run.answers.latency, 0.95)


def served(run: Measured) -> float:
    """Answers a second until the last one."""
    return _rate(run.answers, run.answers.latency)


def _rows(answers: Answers, model: str) -> Floats:
    return answers.latency if model == ALL else answers.latency[answers.asked(model)]


def _quantile(latency: Floats, share: float) -> float:
    answered = latency[np.isfinite(latency)]
    return float(np.quantile(answered, share)) if len(answered) else math.nan


def _rate(answers: Answers, latency: Floats) -> float:
    """Answered, per second until the last answer."""
    finite = answers.latency[np.isfinite(answers.latency)]
    if not len(finite):
        return math.nan
    ends = answers.arrived + answers.latency
    return float(np.isfinite(latency).sum()) / max(float(ends[np.isfinite(ends)].max()), 1e-9)


def _of(counts: Mapping[str, int], model: str) -> int:
    return sum(counts.values()) if model == ALL else counts.get(model, 0)


def _peak(measured: Measured, model: str) -> int:
    return measured.most_bytes if model == ALL else measured.peaks.get(model, 0)


def kendall(one: Sequence[float], other: Sequence[float], noise: float = 0.0) -> float:
    """Tau-b: 1 when both rank alike, -1 when they rank in reverse; ties are corrected for (Kendall, 1945).

    Pairs of which the first differ by no larger a share than `noise` say nothing, and are left out.
    """
    pairs = [(i, j) for i in range(len(one)) for j in range(i) if _apart(one[i], one[j]) >= noise]
    signs = [(np.sign(one[i] - one[j]), np.sign(other[i] - other[j])) for i, j in pairs]
    agree = sum(float(a * b) for a, b in signs)
    untied = [sum(1 for pair in signs if pair[side]) for side in (0, 1)]
    return agree / math.sqrt(untied[0] * untied[1]) if all(untied) else math.nan


def _apart(one: float, other: float) -> float:
    """As a share of the smaller one."""
    return abs(one - other) / max(min(one, other), 1e-9)


def badge(validation: Validation | None, *, now: float, extrapolated: bool) -> Badge:
    """Of a plan whose twin the validation is of, if there is one."""
    if extrapolated:
        return Badge.EXTRAPOLATED
    if validation is None:
        return Badge.NEVER
    if validation.missed:
        return Badge.FAILED
    return Badge.STALE if now - validation.at > STALE_SECONDS else Badge.VALIDATED


def _missed_quantiles(validation: Validation) -> Iterator[str]:
    everything = next((e for e in validation.errors if e.model == ALL), None)
    noise = next((e for e in validation.noise if e.model == ALL), None)
    if everything is None:
        yield "nothing was compared"
        return
    for name in ("p50", "p95", "p99"):
        off = getattr(everything, name)
        allowed = max(GATES[name], 2 * abs(getattr(noise, name)) if noise is not None else 0.0)
        if not abs(off) <= allowed:
            yield f"{name} is {off:+.0%} off, and {allowed:.0%} is allowed"


def _missed_ranks(validation: Validation) -> Iterator[str]:
    if validation.capacity_error is not None and not abs(validation.capacity_error) <= GATES["capacity"]:
        yield f"the capacity is {validation.capacity_error:+.0%} off, and {GATES['capacity']:.0%} is allowed"
    if validation.tau is not None and not validation.tau >= LEAST_TAU:
        yield f"configurations are ranked with a tau of {validation.tau:.2f}, and {LEAST_TAU} is asked for"
