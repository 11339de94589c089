"""What an act would cost, in words, before it is done. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.closely import UnitView
from engine.orders import Action
from web.console import words
from web.console.rows import Row

RECENTLY = 60.0
"""Seconds: a model that was used since then is likely to be used again."""


@dataclass(frozen=True, slots=True)
class Cost:
    """`lines` say what happens; it is asked about first when it `hurts` somebody."""

    lines: tuple[str, ...] = ()
    hurts: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """What the cost follows from."""

    row: Row
    unit: UnitView
    leaving: tuple[str, ...] = ()
    """Who would leave to make room for it."""
    displaced: tuple[str, ...] = ()
    """Who would not fit beside the pins any more."""
    recent: bool = False
    """Whether it was used in the last minute."""
    drain_limit: float = 30.0
    generative: bool = False
    pinned_adapters: tuple[str, ...] = ()
    """Its own that are pinned: while they are, it does not leave."""
    brings: str = ""
    """Of an adapter, the model that has to come with it."""


def of(action: Action, now: Situation) -> Cost:
    match action:
        case Action.PIN:
            return _pin(now)
        case Action.UNPIN:
            return Cost(("It may be evicted again when room is needed.",))
        case Action.LOAD:
            return _load(now)
        case Action.UNLOAD:
            return _unload(now)
        case Action.DRAIN:
            if now.pinned_adapters:
                return _held(now)
            limit = words.span(now.drain_limit)
            first = f"New requests are refused; what is open has {limit} to end; then its weights leave."
            return Cost((first, *_work(now), _back(now)), hurts=True)
        case Action.PAUSE:
            busy = now.row.rate > 0 or now.row.waiting > 0 or now.recent
            refused = f"{now.row.rates} of requests will be refused" if now.row.rate >= 0.05 else ""
            text = f"{refused or 'New requests are refused'}; what waits goes on."
            return Cost((text,), hurts=busy)
        case Action.RESUME:
            return Cost(("It takes requests again.",))
        case Action.RELOAD:
            text = "The same weights are loaded anew, beside the old ones where both fit."
            return Cost((text, *_work(now), _back(now)), hurts=bool(_work(now)))
        case Action.ADJUST:
            return _adjust(now)


def _adjust(now: Situation) -> Cost:
    if not now.generative or not now.row.size_bytes:
        return Cost(("It counts from the next batch on, over restarts too, until it is taken back.",))
    anew = "A model that generates sets memory aside by its limits: new limits load it anew."
    return Cost((anew, *_work(now), _back(now)), hurts=bool(_work(now)))


def _pin(now: Situation) -> Cost:
    own = words.size(now.unit.weights_bytes or now.row.size_bytes)  # without adapters, which may leave
    lines = [f"{own} stay on the device, over restarts too.", *_brings(now)]
    if now.leaving:
        lines.append(f"To make room {_names(now.leaving)} would leave.")
    if now.displaced:
        lines.append(f"Beside the pins there is no room any more for {_names(now.displaced)}.")
    return Cost(tuple(lines), hurts=bool(now.displaced))


def _load(now: Situation) -> Cost:
    if now.row.state == "loaded":
        return Cost(("It is loaded already.",))
    lines = [f"It takes {_size(now)} and about {words.span(now.unit.reload_seconds)}.", *_brings(now)]
    if now.leaving:
        lines.append(f"To make room {_names(now.leaving)} would leave.")
    return Cost(tuple(lines), hurts=bool(now.leaving))


def _unload(now: Situation) -> Cost:
    if not now.row.size_bytes:
        return Cost(("It is on no device.",))
    if now.pinned_adapters:
        return _held(now)
    lines = (*_work(now), f"Frees {_size(now)}.", _back(now))
    return Cost(lines, hurts=bool(_work(now)) or now.recent)


def _held(now: Situation) -> Cost:
    return Cost((f"It will be refused while {_names(now.pinned_adapters)} is pinned; unpin that first.",))


def _brings(now: Situation) -> tuple[str, ...]:
    return (f"{now.brings} comes with it and stays beneath it.",) if now.brings else ()


def _work(now: Situation) -> tuple[str, ...]:
    parts = []
    if now.row.waiting:
        parts.append(f"{words.whole(now.row.waiting)} queued")
    if now.row.in_flight:
        parts.append(f"{words.whole(now.row.in_flight)} in flight")
    return (f"{' and '.join(parts)}: they end first, or wait for it to come back.",) if parts else ()


def _back(now: Situation) -> str:
    return f"The next request waits for it to come back: {words.span(now.unit.reload_seconds)} the last time."


def _size(now: Situation) -> str:
    return words.size(now.row.size_bytes or now.unit.weights_bytes)


def _names(units: tuple[str, ...]) -> str:
    shown = ", ".join(units[:4])
    return f"{shown} and {len(units) - 4} more" if len(units) > 4 else shown
