"""How jobs would fare if they came now: told to whoever asks before sending them. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.errors import DeadlineExceeded
from engine.estimates import Outlook
from engine.scheduling.dispatch import Dispatch
from engine.scheduling.lanes import Job


def outlook(
    dispatch: Dispatch, unit: str, jobs: Sequence[Job], now: float, *, cold: bool, load: float | None
) -> Outlook:
    """`jobs`, all of `unit`, join nothing. `load` is what loading what is not there took the last time."""
    late = any(job.deadline <= now for job in jobs)
    return Outlook(
        cold=cold,
        wait=dispatch.predicted_wait(unit),
        load=load,
        run=_run(dispatch, unit, sum(job.cost for job in jobs)),
        refusal=DeadlineExceeded() if late else dispatch.refusal(jobs, now),
    )


def _run(dispatch: Dispatch, unit: str, cost: int) -> float | None:
    """Batches of the usual size one after the other, shared between the slots that may take them."""
    facts, sizing = dispatch.facts(unit), dispatch.sizing
    if facts.generative:
        return None
    batch = max(1, min(cost, sizing.usual_cost(facts)))
    devices = dict.fromkeys(dispatch.slots.values())
    known = [seconds for device in devices if (seconds := sizing.predicted(unit, device, batch))]
    if not known:
        return None
    batches = math.ceil(cost / batch)
    side_by_side = min(batches, len(dispatch.slots), facts.max_slots)
    return batches / side_by_side * min(known)
