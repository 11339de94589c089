"""The report of a replay: one value, which becomes a page or JSON. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from replay.answers import Answers
from replay.groups import Target, groups_of
from replay.peaks import peaks
from replay.recording import Recording
from replay.replaying.log import Log
from replay.report import charts, devices, figures, verdict
from replay.report.charts import Chart
from replay.report.verdict import Sending
from replay.trace import Trace

MANY_DEVICES = 4


@dataclass(frozen=True, slots=True)
class About:
    """What was done: printed with every figure."""

    source: str
    target: str
    began: str
    """Date and time, for people."""
    server: str
    seed: int
    settings: Mapping[str, str] = field(default_factory=dict)
    """Speed, scale and whatever else makes the traffic another one than was recorded."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Side:
    """Figures of one run: of the replay, or of what was recorded."""

    groups: list[dict[str, Any]]
    """By model and class, the one farthest over its target first."""
    requests: int
    rate: float
    goodput: float
    """Answered within their target, per second."""
    degraded: int
    refused: int
    outcomes: dict[str, int]
    peaks: dict[float, float]
    """Arrivals a second, by the seconds of a sliding window."""
    devices: list[devices.DeviceFigures]
    loads: dict[str, int]


@dataclass(frozen=True, slots=True)
class Report:
    about: About
    sending: Sending
    replayed: Side
    recorded: Side | None
    charts: list[Chart]

    @property
    def void(self) -> tuple[str, ...]:
        return self.sending.void

    def as_json(self) -> dict[str, Any]:
        """Plain data; what is no number is null."""
        found = _plain({name: getattr(self, name) for name in ("sending", "replayed", "recorded")})
        assert isinstance(found, dict)
        return {"about": _plain(self.about), **found, "charts": [chart.as_json() for chart in self.charts]}


def of(
    log: Log,
    about: About,
    target: Target,
    *,
    shares_process: bool,
    recording: Recording | None = None,
    original: Answers | None = None,
) -> Report:
    """`original` is what was recorded of the same requests, and `recording` what that is from."""
    answers = log.answers()
    replayed = _side(answers, target, devices.of_looks(log.looks), devices.loads_of_looks(log.looks))
    recorded = None
    if original is not None and recording is not None:
        there = devices.of_recording(recording), devices.loads_of_recording(recording)
        recorded = _side(original, target, *there)
    tightest = min((row["target"] for row in replayed.groups), default=math.inf)
    return Report(
        about=about,
        sending=verdict.of(log, tightest if math.isfinite(tightest) else 0.0, shares_process),
        replayed=replayed,
        recorded=recorded,
        charts=_charts(answers, original, replayed.devices, log.trace),
    )


def _side(answers: Answers, target: Target, seen: list[devices.DeviceFigures], loads: dict[str, int]) -> Side:
    rows = list(figures.as_rows(groups_of(answers, target), answers.span))
    counts: dict[str, int] = {}
    for word in answers.told():
        counts[word] = counts.get(word, 0) + 1
    good = counts.get("ok", 0) + counts.get("degraded", 0)
    return Side(
        groups=rows,
        requests=len(answers),
        rate=len(answers) / max(answers.span, 1e-9),
        goodput=sum(row["goodput"] for row in rows),
        degraded=counts.get("degraded", 0),
        refused=len(answers) - good,
        outcomes=counts,
        peaks={window: rate for window, rate in peaks(answers.arrived).items() if window <= answers.span},
        devices=seen,
        loads=loads,
    )


def _charts(
    answers: Answers, original: Answers | None, seen: Sequence[devices.DeviceFigures], trace: Trace
) -> list[Chart]:
    width = figures.width_for(max(trace.span, answers.span))
    pairs = [("replayed", answers), *([("recorded", original)] if original is not None else [])]
    made = [
        charts.lines(
            "Arrivals",
            "requests/s",
            [(name, *figures.rate_by_time(each.arrived, width)) for name, each in pairs],
        )
    ]
    for label, share in (("p50", 0.5), ("p99", 0.99)):
        found = [(name, *figures.by_time(each.arrived, each.latency, width, share)) for name, each in pairs]
        made.append(charts.lines(f"Latency, {label} of each {width:g} s", "seconds", found))
    for device in seen[:MANY_DEVICES]:
        used = [size / 2**20 for size in device.used]
        budget = [device.budget_bytes / 2**20] * len(used)
        both = [("held", list(device.times), used), ("budget", list(device.times), budget)]
        made.append(charts.lines(f"Memory of {device.name}", "MiB", both))
    return [chart for chart in made if chart.series]


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value
