"""What becomes of the work of a device that is lost. Pure."""

from __future__ import annotations

from engine.conversation import Finished
from engine.scheduling.effects import Batch
from engine.scheduling.filling import Filling
from engine.scheduling.lanes import Job
from engine.scheduling.waiting import Waiting


def lose(
    device: str,
    reason: str,
    finished: Finished,
    running: dict[int, Batch],
    filling: Filling,
    waiting: Waiting,
) -> tuple[tuple[str, ...], list[Job]]:
    """Its slots are out, its units no longer there, its jobs back in their lanes.

    Answers with the units that this may concern, and the jobs that cannot go back: those that have had
    their second try, and sequences of which somebody may have read the beginning.
    """
    slots = filling.slots
    slots.lose(device, reason)
    for unit in [unit for unit, devices in filling.warm.items() if device in devices]:
        filling.left(unit, device)
    ended = {outcome.job for outcome in finished.outcomes}
    failed: list[Job] = []
    for batch in [batch for batch in running.values() if batch.run.lease.device == device]:
        del running[batch.run.id]
        slots.ended(batch.run.lease.unit)
        if not batch.run.generative:
            failed += waiting.put_back(job for job in batch.jobs if job.id not in ended)
    for sequences in [s for s in waiting.sequences.values() if s.device == device]:
        sequences.done(ended)
        unheard, heard = sequences.clear()
        failed += [*heard, *waiting.put_back(unheard)]
    return tuple({*waiting.units, *waiting.lanes, *waiting.sequences}), failed
