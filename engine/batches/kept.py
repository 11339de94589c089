"""What is kept of a file and of a batch, and how a batch goes from state to state. Pure: `now` comes in.

Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

PART = 512
"""Lines of a job whose answers are counted, and fetched, together."""
MOST_COMPLAINTS = 100
"""Lines that are told of one batch that cannot be run."""


class Status(StrEnum):
    """OpenAI's words."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


ENDED = frozenset({Status.FAILED, Status.COMPLETED, Status.EXPIRED, Status.CANCELLED})


class File(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    owner: str
    """The id of the principal that it belongs to."""
    filename: str
    purpose: str
    bytes: int
    created_at: float
    expires_at: float


class Counts(msgspec.Struct, frozen=True):
    total: int = 0
    completed: int = 0
    failed: int = 0


class Spent(msgspec.Struct, frozen=True):
    """Tokens that the answered lines took and gave."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)


class Job(msgspec.Struct, frozen=True):
    """What the native API calls a job: a batch of one operation, an item a line."""

    operation: str
    model: str
    """As it was asked for."""
    key: str = ""
    """What its maker calls the wish to have it made, so that asking again makes no second one."""
    digest: str = ""
    """Of what was asked with that key."""


class Complaint(msgspec.Struct, frozen=True):
    """Why a batch cannot be run. `line` counts from 1; None where no line is to blame."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    owner: str
    endpoint: str
    input_file_id: str
    window: str
    """As it was written: `24h`."""
    created_at: float
    expires_at: float
    metadata: Mapping[str, str] | None = None
    status: Status = Status.VALIDATING
    at: Mapping[Status, float] = {}
    """When it came to each state after the first."""
    counts: Counts = Counts()
    """As they were at the last change of state; a job's total from the start."""
    spent: Spent = Spent()
    """As it was then."""
    parts: tuple[tuple[int, int], ...] = ()
    """Of a job that has ended: how many answers of each `PART` of its lines are good, and how many not."""
    output_seconds: float | None = None
    """How long its results are kept after they were made; None: as long as any file."""
    job: Job | None = None
    """Set for what was made as a job; then it is none of the batches."""
    output_id: str
    error_id: str
    """The files that results are written to; `files` knows them once the batch has ended."""
    files: tuple[str, ...] = ()
    """Those of the two that there are."""
    complaints: tuple[Complaint, ...] = ()

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    def to(self, status: Status, now: float) -> Batch:
        """In another state. What has ended stays as it is."""
        if self.ended:
            return self
        return msgspec.structs.replace(self, status=status, at={**self.at, status: now})

    def refused(self, complaints: tuple[Complaint, ...], now: float) -> Batch:
        """It cannot be run."""
        return msgspec.structs.replace(self.to(Status.FAILED, now), complaints=complaints[:MOST_COMPLAINTS])

    def begun(self, total: int, now: float) -> Batch:
        """Every line was looked at. One that is being cancelled stays so."""
        if self.status is not Status.VALIDATING:
            return self
        return msgspec.structs.replace(self.to(Status.IN_PROGRESS, now), counts=Counts(total))

    def cancelled(self, now: float) -> Batch:
        """As soon as somebody wants it; `Status.CANCELLED` comes when nothing of it runs any more."""
        return self if self.status is Status.CANCELLING else self.to(Status.CANCELLING, now)


def last(batch: Batch, complete: bool, now: float) -> Status | None:
    """How a batch is to end now; None while it goes on."""
    if batch.status is Status.CANCELLING:
        return Status.CANCELLED
    if complete:
        return Status.COMPLETED
    return Status.EXPIRED if now >= batch.expires_at else None
