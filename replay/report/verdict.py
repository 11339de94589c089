"""Whether a replay may be believed: what was sent, how late, and why it is void where it is. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from replay.replaying.log import Log

LEAST_LIMIT = 0.005
"""Seconds of p99 send lag that are always allowed."""

SHARE = 0.01
"""Of the tightest target, where that is more."""

BUSIEST = 0.8
"""Of a core: a sender that is busier than this is measuring itself."""


@dataclass(frozen=True, slots=True)
class Sending:
    requests: int
    """In the trace."""
    sent: int
    unsent: int
    lag_p50: float
    lag_p99: float
    lag_max: float
    """Seconds between the intended and the real sending."""
    limit: float
    """Of `lag_p99`."""
    cpu_share: float
    """Of one core, that the sending process used."""
    aborted: bool
    void: tuple[str, ...]
    """Why nothing of it may be relied on; empty when it may."""


def lag_limit(tightest: float) -> float:
    """Seconds of p99 send lag above which a run is void, by the smallest p99 target of what was asked."""
    return max(LEAST_LIMIT, SHARE * tightest)


def of(log: Log, tightest: float, shares_process: bool) -> Sending:
    """`tightest` is the smallest p99 target of what was asked, in seconds."""
    lag = log.lag
    p50, p99, most = (float(np.quantile(lag, q)) if len(lag) else 0.0 for q in (0.5, 0.99, 1.0))
    limit = lag_limit(tightest)
    unsent, void = log.unsent, []
    if p99 > limit:
        void.append(f"requests went out late: p99 {p99 * 1000:.1f} ms, {limit * 1000:.1f} ms are allowed")
    if unsent:
        void.append(f"{unsent} requests were not sent")
    if not len(lag):
        void.append("nothing was sent")
    if log.cpu_share > BUSIEST and not shares_process:
        void.append(f"the sender used {log.cpu_share:.0%} of a core; it may be what was slow")
    return Sending(
        requests=len(log.trace),
        sent=len(lag) - unsent if unsent <= len(lag) else 0,
        unsent=unsent,
        lag_p50=p50,
        lag_p99=p99,
        lag_max=most,
        limit=limit,
        cpu_share=log.cpu_share,
        aborted=log.aborted,
        void=tuple(void),
    )
