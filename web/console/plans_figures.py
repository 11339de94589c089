"""What the pages of plans draw of a result, which is what `serai plan study --json` says. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from web.console import plans_form
from web.console.curves import Curve, Line, Mark
from web.console.errands import Errand

Result = Mapping[str, Any]

SHOWN_MODELS = 8
HIGHEST = 4.0
"""Times over its target that a curve of latency shows."""

STAGES = ("prepare", "queue", "load", "run")
WORDS = {
    "vram": "cards of {}",
    "speed": "{} times the speed",
    "devices": "{} cards",
    "pin": "pins {}",
    "unpin": "unpins {}",
    "traffic": "{} times the traffic",
    "method": "by {}",
    "policy": "evicts by {}",
    "window": "window {}",
    "headroom": "headroom {}",
    "add_model": "adds {}",
    "server": "on the server of {}",
    "as": "{}",
    "hours": "the busiest {} h",
    "seed": "seed {}",
}


@dataclass(frozen=True, slots=True)
class Fall:
    """Where the time of one model's requests went, as parts of a line."""

    name: str
    group: Mapping[str, Any]
    parts: list[tuple[str, float, float, float]]
    """Stage, seconds, and place and width in thousandths of the longest."""


def told(errand: Errand) -> str:
    """What is otherwise, for people."""
    said = [
        WORDS[name].format(value.replace("\n", ", ")) for name, value in errand.asked.items() if name in WORDS
    ]
    return ", ".join(said) or "as it is"


def summary(result: Result) -> Mapping[str, Any]:
    """What the list says of a result."""
    capacity = result["study"]["capacity"]
    return {
        **result["verdict"],
        "knee": capacity["knee"],
        "badge": result["from"]["badge"],
        "rate": capacity["rate"],
        "fails": capacity["fails_first"],
        "cost": result["study"]["cost"],
    }


def curves(result: Result) -> Iterator[Curve]:
    yield latency_by_load(result)
    yield memory(result)


def latency_by_load(result: Result) -> Curve:
    """The worst p99, in targets, over the rate of all; with the knee, its interval and the peaks."""
    capacity = result["study"]["capacity"]
    points = capacity["curve"]
    rates = sorted({point["offered"] for point in points})
    marks = list(_marks(capacity))
    return Curve(
        "Worst p99, in times its target, against load",
        rates,
        [
            Line("median of the sweeps", _median(points, rates)),
            Line("holds", _where(points, rates, True), look="accent", style="points"),
            Line("fails", _where(points, rates, False), look="bad", style="points"),
        ],
        x_kind="rate",
        y_kind="times",
        marks=[*marks, Mark(1.0, "target", look="bad", level=True)],
        most=HIGHEST,
    )


def _marks(capacity: Mapping[str, Any]) -> Iterator[Mark]:
    knee = capacity["knee"]
    if knee["knee_slo"] is not None:
        if knee["low"] is not None and knee["high"] is not None:
            yield Mark(knee["low"], "90 % interval", until=knee["high"])
        yield Mark(knee["knee_slo"], f"knee {knee['knee_slo']:.3g}/s")
    if knee["saturation"] is not None:
        yield Mark(knee["saturation"], f"saturation {knee['saturation']:.3g}/s", look="grey")
    minute = capacity["peaks"].get("60.0")
    if minute is not None:
        yield Mark(minute, f"busiest minute {minute:.3g}/s", look="warn")


def _median(points: Sequence[Mapping[str, Any]], rates: Sequence[float]) -> list[float | None]:
    """Of the sweeps, each joined by straight lines; no sweep counts beyond its ends."""
    sweeps: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        height = HIGHEST * 2 if point["p99"] is None else point["p99"]
        sweeps.setdefault(point["sweep"], []).append((point["offered"], height))
    return [_middle([v for s in sweeps.values() if (v := _at(s, rate)) is not None]) for rate in rates]


def _at(sweep: Sequence[tuple[float, float]], rate: float) -> float | None:
    for (low, before), (high, after) in itertools.pairwise(sweep):
        if low <= rate <= high:
            return before + (after - before) * (rate - low) / max(high - low, 1e-12)
    return None


def _middle(values: list[float]) -> float | None:
    if not values:
        return None
    values.sort()
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def _where(points: Sequence[Mapping[str, Any]], rates: Sequence[float], holds: bool) -> list[float | None]:
    found = {
        p["offered"]: p["p99"] if p["p99"] is not None else HIGHEST for p in points if p["holds"] is holds
    }
    return [min(found[rate], HIGHEST) if rate in found else None for rate in rates]


def memory(result: Result) -> Curve:
    """Weights on the cards over time, of each model, one upon the other."""
    holdings = result["study"]["memory"]
    shown = holdings[:SHOWN_MODELS]
    times = sorted({at for each in holdings for at in each["times"]})
    lines = [
        Line(each["unit"], _held(each, times), look=str(n), style="area") for n, each in enumerate(shown)
    ]
    if rest := holdings[SHOWN_MODELS:]:
        sums = [sum(column) for column in zip(*(_held(each, times) for each in rest), strict=True)]
        lines.append(Line(f"{len(rest)} others", sums, look="grey", style="area"))
    budget = result["study"]["budget_bytes"]
    return Curve(
        "Memory by model, over time",
        times,
        lines,
        y_kind="bytes",
        marks=[Mark(float(budget), "budget", look="bad", level=True)],
    )


def _held(holding: Mapping[str, Any], times: Sequence[float]) -> list[float]:
    found, place, now = [], 0, 0
    own = holding["times"]
    for at in times:
        while place < len(own) and own[place] <= at:
            now = holding["held"][place]
            place += 1
        found.append(float(now))
    return found


def falls(result: Result) -> list[Fall]:
    """What fails first above the knee, and then each group as the traffic is, the worst first."""
    capacity = result["study"]["capacity"]
    groups = [("fails first", capacity["fails_first"])] if capacity["fails_first"] else []
    groups += [("", group) for group in capacity["base"][:8]]
    longest = max((sum(g["stages"].values()) for _, g in groups), default=0.0) or 1.0
    return [Fall(name, group, list(_parts(group["stages"], longest))) for name, group in groups]


def _parts(stages: Mapping[str, float], longest: float) -> Iterator[tuple[str, float, float, float]]:
    place = 0.0
    for name in STAGES:
        width = 1000 * stages.get(name, 0.0) / longest
        yield name, stages.get(name, 0.0), round(place, 1), round(width, 1)
        place += width


def with_pins(errand: Errand, result: Result) -> Mapping[str, str]:
    """The form of the same plan with the pins that were found, to be asked."""
    steps = result["study"]["pins"] or []
    if not steps:
        return {}
    said = plans_form.kept(errand.asked)
    pins = [*filter(None, said.get("pin", "").split(",")), *(step["unit"] for step in steps)]
    return {**said, "pin": ",".join(dict.fromkeys(pins)), "recording": errand.source}


def side_by_side(results: Sequence[Result]) -> list[tuple[str, list[Mapping[str, Any] | None]]]:
    """Each model and class, and what each plan says of it."""
    found: list[dict[tuple[str, str], Mapping[str, Any]]] = [
        {(g["unit"], g["service_class"]): g for g in result["study"]["capacity"]["base"]}
        for result in results
    ]
    keys = dict.fromkeys(key for groups in found for key in groups)
    return [(f"{unit}, {name}", [groups.get((unit, name)) for groups in found]) for unit, name in keys]


def together(found: Sequence[tuple[Errand, Result]]) -> Curve:
    """The curves of latency of several plans in one."""
    points = [result["study"]["capacity"]["curve"] for _, result in found]
    rates = sorted({point["offered"] for each in points for point in each})
    lines = [
        Line(errand.asked.get("label") or told(errand), _median(each, rates), look=str(n))
        for n, ((errand, _), each) in enumerate(zip(found, points, strict=True))
    ]
    return Curve(
        "Worst p99, in times its target, against load",
        rates,
        lines,
        x_kind="rate",
        y_kind="times",
        marks=[Mark(1.0, "target", look="bad", level=True)],
        most=HIGHEST,
    )
