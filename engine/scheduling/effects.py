"""What `Dispatch` wants done, beside the messages it sends. Pure."""

from __future__ import annotations

import msgspec

from engine.conversation import Lost, Need, Outcome, Release, Run, Spread, Unwanted, Wanted
from engine.errors import Failure
from engine.requests import ServiceClass
from engine.scheduling.lanes import Job


class Dropped(msgspec.Struct, frozen=True):
    """These jobs are out of the queue and will not run: `expired` or `abandoned`."""

    jobs: tuple[Job, ...]
    reason: str


class Done(msgspec.Struct, frozen=True):
    """These jobs have come to their end in a batch, one way or the other."""

    outcomes: tuple[Outcome, ...]


class Failed(msgspec.Struct, frozen=True):
    """These jobs are out of the queue since nothing can run them."""

    jobs: tuple[Job, ...]
    failure: Failure


class Batch(msgspec.Struct, frozen=True):
    """A batch that runs: what was sent, under which lease, and what was expected of it."""

    run: Run
    jobs: tuple[Job, ...]
    cost: int
    service_class: ServiceClass
    started: float
    predicted: float


Effect = Run | Need | Release | Wanted | Unwanted | Spread | Lost | Done | Dropped | Failed
