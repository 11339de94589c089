"""The batches that run: what is written down when one starts, and what is learned when it ends. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.conversation import Finished, JobRef, Lease, Release, Run
from engine.scheduling.admission import Admission
from engine.scheduling.batching import Formed
from engine.scheduling.effects import Batch, Dropped
from engine.scheduling.lanes import Job
from engine.scheduling.policy import FairShare
from engine.scheduling.sequences import Sequences
from engine.scheduling.sizing import Sizing
from engine.scheduling.slots import Slots
from engine.scheduling.window import Window
from engine.units import UnitFacts


@dataclass(slots=True)
class Batches:
    facts: Callable[[str], UnitFacts]
    sizing: Sizing
    share: FairShare
    window: Window
    slots: Slots
    admission: Admission
    sequences: Mapping[str, Sequences]
    running: dict[int, Batch]
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def start(
        self,
        lease: Lease,
        jobs: Sequence[Job],
        leaving: tuple[str, ...],
        sequences: Sequences | None,
        now: float,
    ) -> Run:
        """Charge what it is expected to take, and say what is to be run."""
        cost = sum([job.cost for job in jobs])
        urgency = min([job.service_class for job in jobs], default=None)
        if sequences is not None and (going := sequences.urgency) is not None:
            urgency = going if urgency is None else min(going, urgency)
        assert urgency is not None, "a batch of nothing"
        if sequences is not None:
            predicted = seconds = self.sizing.quantum(urgency, now)
        else:
            predicted, seconds = self.sizing.predicted(lease.unit, lease.device, cost), 0.0
        run = Run(
            id=next(self._numbers),
            lease=lease,
            jobs=tuple([JobRef(job.id, job.cost, job.id) for job in jobs]),
            running=tuple(job.id for job in sequences) if sequences is not None else (),
            leaving=leaving,
            seconds=seconds,
            generative=sequences is not None,
            attempt=max([job.attempt for job in jobs], default=1),
        )
        self.running[run.id] = Batch(run, tuple(jobs), cost, urgency, now, predicted)
        self.slots.started(lease.unit)
        self.share.charge(lease.unit, urgency, predicted, self.facts(lease.unit).weight, now)
        return run

    def end(self, finished: Finished, batch: Batch, now: float) -> list[Dropped | Release]:
        """Correct the charge, learn, and give the lease back."""
        lease, facts = finished.lease, self.facts(finished.lease.unit)
        cost = max(1, batch.cost)
        self.slots.ended(lease.unit)
        correction = finished.spent - batch.predicted
        self.share.charge(lease.unit, batch.service_class, correction, facts.weight, now)
        if not facts.generative and not finished.out_of_memory:
            self.sizing.observe(lease.unit, lease.device, cost, finished.spent)
        self.window.answered(lease.unit, len({job.request for job in batch.jobs}), now)
        self.admission.finished(lease.unit, cost, now)
        effects: list[Dropped | Release] = []
        kv_tokens = 0
        adapters: tuple[str, ...] = ()
        if (sequences := self.sequences.get(lease.unit)) is not None:
            sequences.spoke(progress.job for progress in finished.progress)
            sequences.done(outcome.job for outcome in finished.outcomes)
            effects += dropped(sequences.left(now))
            kv_tokens, adapters = sequences.kv_tokens, sequences.adapters
        release = Release(
            lease,
            kv_tokens,
            finished.spent,
            cost=batch.cost,
            peak_bytes=finished.peak_bytes,
            out_of_memory=finished.out_of_memory,
            adapters=adapters,
        )
        return [*effects, release]


def dropped(formed: Formed) -> list[Dropped]:
    """What was found dead on the way, by reason."""
    effects: list[Dropped] = []
    if formed.expired:
        effects.append(Dropped(tuple(formed.expired), "expired"))
    if formed.abandoned:
        effects.append(Dropped(tuple(formed.abandoned), "abandoned"))
    return effects
