"""Rules that a plan is held to: what each asks, whether it holds, and what was found. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from replay.capacity import ENOUGH, Capacity
from replay.peaks import DECISIVE
from replay.twin.results import DEGRADED
from replay.twin.server import Server

WINDOW_SHARE = 0.1
HEADROOM = 0.2
DAYS, BETTER_DAYS = 7.0, 14.0
"""A week of one service had its busiest minute five times below that of the weeks after."""

DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    text: str


def checks(capacity: Capacity, server: Server, days: float) -> Iterator[Check]:
    """`days`: how long the recording is, of whose busiest part the capacity may be."""
    yield _redundancy(capacity)
    yield _window(capacity, server)
    yield from _headroom(capacity, server)
    yield _queue(capacity)
    yield _days(days)
    yield _known(capacity, server)


def _redundancy(capacity: Capacity) -> Check:
    least = capacity.most[0]
    text = f"{capacity.redundancy:.2f}: k* {least.k:.2f} by {least.method}"
    if (limit := capacity.carrying_limit) is not None:
        busiest = capacity.peaks.get(DECISIVE)
        over = "" if busiest is None else f" over the busiest minute's {busiest:.3g}/s"
        text += f", knee {limit:.3g}/s{over}"
    return Check(f"redundancy of {ENOUGH:g}", capacity.enough, text)


def _window(capacity: Capacity, server: Server) -> Check:
    """And what half and twice the window would do."""
    share = server.scheduling.window_share
    told = ", ".join(f"x{factor:g}: {worst:.3g}" for factor, worst in capacity.windows.items())
    text = f"{share:.0%} of the target; worst p99 in targets of the busiest minutes with {told}"
    return Check("window within a tenth of the p99 target", share <= WINDOW_SHARE, text)


def _headroom(capacity: Capacity, server: Server) -> Iterator[Check]:
    for card in server.cards:
        most = capacity.results.peaks.devices.get(card.name, 0)
        free = 1 - most / card.memory_bytes
        text = (
            f"{card.name}: at most {most / 2**30:.2f} of {card.memory_bytes / 2**30:.2f} GiB, {free:.0%} free"
        )
        yield Check("a fifth of the memory free at the peak", free >= HEADROOM, text)


def _queue(capacity: Capacity) -> Check:
    answers = capacity.results.answers
    full, degraded = answers.ended("QUEUE_FULL"), answers.ended(DEGRADED)
    told = []
    for unit in answers.models:
        mine = answers.asked(unit)
        if (full | degraded)[mine].any():
            told.append(f"{unit} {full[mine].mean():.1%} refused, {degraded[mine].mean():.1%} degraded")
    text = "; ".join(told) or "nothing was refused for a full queue or degraded"
    return Check("no queue reached its limit", not told, text)


def _days(days: float) -> Check:
    text = f"{days:.2g} days are recorded"
    if days < BETTER_DAYS:
        text += f"; with less than {BETTER_DAYS:.0f} the busiest minute of the year is a guess"
    return Check(f"at least {DAYS:.0f} days recorded", days >= DAYS, text)


def _known(capacity: Capacity, server: Server) -> Check:
    beyond = capacity.results.extrapolated
    told = [f"{unit}: {count} batches of a size never seen" for unit, count in sorted(beyond.items())]
    told += server.assumed
    return Check("everything was measured", not told, "; ".join(told) or server.origin)
