"""When a model was where: the changes of its residency as segments of a line. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.events import ResidencyChanged

WIDTH = 1000
GONE = {"evicted", "unloaded", "lost", "failed"}


@dataclass(frozen=True, slots=True)
class Segment:
    kind: str  # loading | ready
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Line:
    device: str
    segments: tuple[Segment, ...]


def lines(
    changes: Iterable[ResidencyChanged], here: Iterable[str], now: float, seconds: float
) -> tuple[Line, ...]:
    """`changes` of one model, the oldest first; `here`: the devices that it is ready on now.

    What came before the first change that is remembered is taken to have been there since ever.
    """
    by_device: dict[str, list[ResidencyChanged]] = {device: [] for device in here}
    for change in changes:
        by_device.setdefault(change.device, []).append(change)
    start = now - seconds
    return tuple(
        Line(device, tuple(_segments(found, device in set(here), start, now)))
        for device, found in sorted(by_device.items())
    )


def _segments(changes: list[ResidencyChanged], ready: bool, start: float, now: float) -> Iterable[Segment]:
    since: float | None = start if not changes and ready else None
    if changes and changes[0].event in GONE - {"failed"}:
        since = start
    for change in changes:
        if change.event == "loaded":
            yield from _segment("loading", change.at - change.seconds, change.at, start, now)
            since = change.at
        elif since is not None:
            yield from _segment("ready", since, change.at, start, now)
            since = None
    if since is not None and ready:
        yield from _segment("ready", since, now, start, now)


def _segment(kind: str, begins: float, ends: float, start: float, now: float) -> Iterable[Segment]:
    """The part of it that the line shows; never thinner than can be seen."""
    if ends <= start:
        return
    x = WIDTH * (max(begins, start) - start) / (now - start)
    width = max(2.0, WIDTH * (ends - max(begins, start)) / (now - start))
    yield Segment(kind, round(min(x, WIDTH - 2), 1), round(width, 1))
