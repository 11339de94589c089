"""What each model held over time, as its loads and departures tell it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from engine.events import ResidencyChanged

GONE = ("evicted", "unloaded", "lost")


@dataclass(frozen=True, slots=True)
class Holding:
    """Bytes of weights on all devices together, as steps: each holds from its time to the next one's."""

    unit: str
    times: tuple[float, ...]
    """Seconds from the first arrival."""
    held: tuple[int, ...]


def holdings(changes: Sequence[ResidencyChanged], span: float) -> list[Holding]:
    """From zero to `span`; what was held most, times its time, first."""
    found: dict[str, list[tuple[float, int]]] = defaultdict(list)
    here: dict[tuple[str, str], int] = {}
    for change in sorted(changes, key=lambda each: each.at):
        key = (change.unit, change.device)
        if change.event == "loaded":
            here[key] = change.weights_bytes
        elif change.event in GONE:
            here.pop(key, None)
        else:
            continue
        total = sum(size for (unit, _), size in here.items() if unit == change.unit)
        found[change.unit].append((max(0.0, change.at), total))
    made = [_steps(unit, changed, span) for unit, changed in found.items()]
    return sorted(made, key=lambda each: -_area(each))


def _steps(unit: str, changed: list[tuple[float, int]], span: float) -> Holding:
    """Of several at one moment the last counts."""
    last = dict(changed)
    if 0.0 not in last:
        last = {0.0: 0, **last}
    times = [at for at in last if at <= span]
    held = [last[at] for at in times]
    return Holding(unit, (*times, span), (*held, held[-1]))


def _area(holding: Holding) -> float:
    pairs = zip(holding.times, holding.times[1:], holding.held, strict=False)
    return sum((after - at) * size for at, after, size in pairs)
