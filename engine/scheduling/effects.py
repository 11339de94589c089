"""What `Dispatch` wants done, beside the messages it sends. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.conversation import Lost, Need, Outcome, Release, Run, Spread, Unwanted, Wanted
from engine.errors import Failure
from engine.requests import ServiceClass
from engine.scheduling.lanes import Job


@dataclass(frozen=True, slots=True)
class Dropped:
    """These jobs are out of the queue and will not run: `expired` or `abandoned`."""

    jobs: tuple[Job, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """These jobs have come to their end in a batch, one way or the other."""

    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """These jobs are out of the queue since nothing can run them."""

    jobs: tuple[Job, ...]
    failure: Failure


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that runs: what was sent, under which lease, and what was expected of it."""

    run: Run
    jobs: tuple[Job, ...]
    cost: int
    service_class: ServiceClass
    started: float
    predicted: float


Effect = Run | Need | Release | Wanted | Unwanted | Spread | Lost | Done | Dropped | Failed
