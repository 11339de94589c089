"""What the actors say to each other as plain data: ids, numbers and names, nothing else.

The pure cores take these in and give them out; a slot may be a thread, a child process or another
machine, since all that goes to a runner and comes back survives a msgpack round trip. Payloads travel
beside the messages, by reference. The messages that carry a reply are in `engine/actors/messages.py`
and beside it.
"""

from __future__ import annotations

import math

import msgspec

from engine.chosen import Chosen
from engine.errors import Failure
from engine.memory.footprint import Footprint
from engine.requests import ServiceClass


class Lease(msgspec.Struct, frozen=True):
    """The right to run one batch of `unit` on `device`, up to `max_cost`, with memory set aside for it."""

    id: int
    unit: str
    device: str
    slot: str
    max_cost: int
    kv_bytes: int = 0
    adapters: tuple[str, ...] = ()
    """Adapters of the unit, by their own units, that stay as long as the lease."""


class JobRef(msgspec.Struct, frozen=True):
    """A job as a runner sees it. `payload` names its prepared input."""

    id: str
    cost: int
    payload: str


class Run(msgspec.Struct, frozen=True):
    """batcher -> runner: the batch you asked for.

    For a generative unit the jobs are those that join, `running` those already under way, `leaving`
    those to forget, and the quantum lasts about `seconds`.
    """

    id: int
    lease: Lease
    jobs: tuple[JobRef, ...]
    running: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    seconds: float = 0.0
    generative: bool = False
    attempt: int = 1


class Outcome(msgspec.Struct, frozen=True):
    """How one job ended: `output` names its result, or `failure` says why there is none."""

    job: str
    output: str | None = None
    failure: Failure | None = None


class Progress(msgspec.Struct, frozen=True):
    """runner -> batcher: a piece of text for a job that goes on."""

    job: str
    text: str
    tokens: int
    chosen: tuple[Chosen, ...] = ()


class Finished(msgspec.Struct, frozen=True):
    """runner -> batcher: a batch is done; these are its jobs' ends, and `spent` seconds of the slot."""

    run: int
    lease: Lease
    outcomes: tuple[Outcome, ...]
    spent: float
    progress: tuple[Progress, ...] = ()
    out_of_memory: bool = False
    peak_bytes: int = 0
    """What the batch held beside the weights at its peak; 0 where nobody could tell."""
    lost: bool = False
    """The device is gone: the jobs without an outcome did not run to their end."""


class Idle(msgspec.Struct, frozen=True):
    """runner -> batcher: send me a batch when you have one."""

    slot: str


class Wanted(msgspec.Struct, frozen=True):
    """batcher -> memory manager: work waits for this unit.

    Told again when the unit is nowhere and what waits for it has become more or less urgent.
    """

    unit: str
    urgency: ServiceClass = ServiceClass.STANDARD
    due: float = math.inf
    """When the first job should be done."""
    there: tuple[str, ...] = ()
    """Devices of which nobody need say that leases can be had."""


class Unwanted(msgspec.Struct, frozen=True):
    """batcher -> memory manager: nothing waits for this unit any more."""

    unit: str


class Expected(msgspec.Struct, frozen=True):
    """router -> memory manager: work for this unit is likely soon; load it if there is room to spare."""

    unit: str


class Spread(msgspec.Struct, frozen=True):
    """batcher -> memory manager: `device` has a free slot that could serve this unit's backlog."""

    unit: str
    device: str


class Lost(msgspec.Struct, frozen=True):
    """batcher -> memory manager: the device is gone, and all that was on it."""

    device: str
    reason: str


class Need(msgspec.Struct, frozen=True):
    """batcher -> memory manager: a lease for this slot, please; the next job alone costs `min_cost`."""

    unit: str
    device: str
    slot: str
    min_cost: int
    want_cost: int
    kv_floor: int = 0
    """KV tokens that the unit's running sequences hold."""
    kv_min: int = 0
    """What it would hold with the first sequence that waits."""
    kv_want: int = 0
    """What it would hold with all that could join."""
    urgency: ServiceClass = ServiceClass.STANDARD
    """The most urgent class of what waits or goes on."""
    needed: tuple[str, ...] = ()
    """Units of the adapters that the next job is read with."""
    adapters: tuple[str, ...] = ()
    """And of all that the batch might be read with, those of sequences that go on among them."""

    @property
    def goes_on(self) -> bool:
        """Whether sequences run and none joins: their KV is held already."""
        return 0 < self.kv_floor == self.kv_min


class Granted(msgspec.Struct, frozen=True):
    """memory manager -> batcher: run a batch under this lease. `kv_tokens` is the new total."""

    lease: Lease
    kv_tokens: int = 0


class Denied(msgspec.Struct, frozen=True):
    """memory manager -> batcher: not now. `Ready` or `Unavailable` follows for this unit."""

    slot: str
    unit: str
    device: str
    reason: str


class TooLarge(msgspec.Struct, frozen=True):
    """memory manager -> batcher: no job above `max_cost` or `max_kv_tokens` can ever run there."""

    slot: str
    unit: str
    device: str
    max_cost: int
    max_kv_tokens: int


class Ready(msgspec.Struct, frozen=True):
    """memory manager -> batcher: leases for this unit on this device can be had (again)."""

    unit: str
    device: str
    load_seconds: float = 0.0


class Left(msgspec.Struct, frozen=True):
    """memory manager -> batcher: the unit gives no more leases on this device."""

    unit: str
    device: str


class Unavailable(msgspec.Struct, frozen=True):
    """memory manager -> batcher: what waits for this unit cannot be served."""

    unit: str
    failure: Failure


class Release(msgspec.Struct, frozen=True):
    """batcher -> memory manager: a lease is over; the unit's sequences now hold `kv_tokens`."""

    lease: Lease
    kv_tokens: int = 0
    spent: float = 0.0
    cost: int = 0
    """Of the batch that ran."""
    peak_bytes: int = 0
    out_of_memory: bool = False
    adapters: tuple[str, ...] = ()
    """Those that the unit's sequences still need."""


class Inspected(msgspec.Struct, frozen=True):
    """a thread -> memory manager: what a unit will take, or why it cannot be had."""

    unit: str
    footprint: Footprint | None
    failure: Failure | None = None


class Loaded(msgspec.Struct, frozen=True):
    """a thread -> memory manager: the weights are on the device."""

    unit: str
    device: str
    seconds: float


class LoadFailed(msgspec.Struct, frozen=True):
    """a thread -> memory manager: they are not, and why."""

    unit: str
    device: str
    failure: Failure


class Unloaded(msgspec.Struct, frozen=True):
    """a thread -> memory manager: the weights are gone from the device."""

    unit: str
    device: str
    kept_bytes: int = 0
    """What they take in host memory now; 0 when they are not there."""


class Observed(msgspec.Struct, frozen=True):
    """a sampler -> memory manager: what others hold on this device, as its driver sees it."""

    device: str
    foreign_bytes: int
    allocated_bytes: int = 0
    """What this process holds there: the ledger's lines explain it, or it is unattributed."""
