"""More traffic of the same kind, by three methods that answer three questions. Pure.

They differ by a factor of almost two on the same trace, so every figure names its method.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum

import numpy as np

from replay.trace import NO_SESSION, BadTrace, Ints, Trace

JITTER = 0.05
"""Seconds: copies of one request come within this of it."""


class Method(StrEnum):
    WARP = "warp"  # the same clients, faster: time shrinks, order and shape stay
    DUP = "dup"  # more of the same at the same moments: bursts grow with the load
    SHIFT = "shift"  # other clients like these at other moments: bursts average out


def scaled(trace: Trace, factor: float, method: Method, seed: int) -> Trace:
    """`factor` times the load. Raises BadTrace for a factor that is not positive."""
    if not (factor > 0 and math.isfinite(factor)):
        raise BadTrace(f"The scale {factor} is no positive number.")
    match method:
        case Method.WARP:
            return replace(trace, arrived=trace.arrived / factor, resolution=trace.resolution / factor)
        case Method.DUP:
            return _copied(trace, factor, seed, shift=False)
        case Method.SHIFT:
            return _copied(trace, factor, seed, shift=True)


def _copied(trace: Trace, factor: float, seed: int, shift: bool) -> Trace:
    """Whole copies and a part: of the part whole sessions are taken, or requests that have none.

    Each copy has luck of its own, so that a larger load is a smaller one and more beside it: else a target
    might be missed at one factor and met at the next by chance alone.
    """
    parts, times, sessions = [], [], []
    whole, rest = int(factor), factor - int(factor)
    first_free = int(trace.session.max()) + 1
    for copy in range(whole + (rest > 0)):
        rng = np.random.default_rng((seed, copy))
        arrived = trace.arrived
        if copy and shift:  # round the clock: what would come after the end comes before the start
            arrived = (arrived + rng.uniform(0, trace.span)) % max(trace.span, 1e-9)
        elif copy:
            arrived = arrived + rng.uniform(0, JITTER, len(trace))
        rows = np.arange(len(trace)) if copy < whole else _part(trace, rest, rng)
        parts.append(rows)
        times.append(arrived[rows])
        own = trace.session[rows]
        sessions.append(np.where(own == NO_SESSION, NO_SESSION, own + copy * first_free))
    every, when = np.concatenate(parts), np.concatenate(times)
    order = np.argsort(when, kind="stable")
    made = trace.take(every[order])
    when = when[order]
    return replace(made, arrived=when - when[0], session=np.concatenate(sessions)[order])


def _part(trace: Trace, share: float, rng: np.random.Generator) -> Ints:
    """Rows of about `share` of the sessions. Never rows at random from within one: that thins its bursts.
    With the same luck a larger share holds all that a smaller one does."""
    alone = trace.session == NO_SESSION
    # Requests without a session keep their bursts when whole stretches of time are taken.
    seconds = np.floor(trace.arrived).astype(np.int64)
    group = np.where(alone, -1 - seconds, trace.session)
    groups = np.unique(group)
    chosen = groups[rng.random(len(groups)) < share]
    return np.flatnonzero(np.isin(group, chosen))
