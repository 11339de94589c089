"""Which waiting jobs form the next batch. Pure: the clock comes in as `now`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from engine.requests import ServiceClass
from engine.scheduling.lanes import Job, Lane

LOOK_AHEAD = 16
"""So many jobs that do not fit are passed over for smaller ones behind them. Each of them is due
earlier than what passes it, so it heads a batch soon: nothing is passed over for ever."""

FULL_ENOUGH = 1 / 16
"""With so little of a batch left nobody is passed over for it."""

PASSES = 16
"""Batches in a row that may go without the job due first, each of which has no place for it beside the
job whose turn it is. A class that waits has about such a share of the device as well."""


class Room(msgspec.Struct, frozen=True):
    """What a batch may come to."""

    cost: int
    """What memory was set aside for: never exceeded."""
    soft_cost: Mapping[ServiceClass, int] = msgspec.field(default_factory=dict)
    """What profile and predicted time ask for, by class: no job of that class joins beyond it, so that
    background that rides along makes no interactive batch long. A job that cannot be split may, alone."""
    jobs: int = 1 << 62
    kv_tokens: int = 1 << 62
    adapters: Collection[str] = ()
    """What may be read with: jobs that need others stay."""


@dataclass(slots=True)
class Formed:
    jobs: list[Job] = field(default_factory=list)
    expired: list[Job] = field(default_factory=list)
    abandoned: list[Job] = field(default_factory=list)


def form(lane: Lane, room: Room, now: float, wanted: Callable[[Job], bool]) -> Formed:
    """Take the next batch out of `lane`: the job due first, then the most urgent that fit with it, by turns
    between principals.

    Where it would take the place of a job whose turn it is (a batch of one document, a job as large as a
    batch, the only free seat of a model that writes), class and turns decide who goes, and the job due first
    is next after `PASSES` of them at the latest.

    The first goes even when it is over the soft limit, since it cannot be split; when it is over the
    room it stays, and nothing goes. Jobs past their deadline and jobs that nobody waits
    for are taken out on the way and never run.
    """
    others = lane.adapters.keys() - {*room.adapters} if lane.adapters else None
    if not others:
        return _form(lane, room, now, wanted)
    staying = lane.take_out(lambda job: not others.isdisjoint(job.adapters))
    formed = _form(lane, room, now, wanted)
    for job in staying:
        lane.put_back(job)
    return formed


def _form(lane: Lane, room: Room, now: float, wanted: Callable[[Job], bool]) -> Formed:
    formed = Formed()
    head = _alive(lane.head, lane.pop_head, now, wanted, formed)
    if head is None or not _enters(head, room):
        return formed
    turn = _alive(lane.next, lane.pop_next, now, wanted, formed)
    if turn is not head and (
        turn is None or not _enters(turn, room) or _goes_first(head, turn, room, lane.passes)
    ):
        turn = head
    lane.passes = 0 if turn is head else lane.passes + 1
    lane.went(lane.pop_head() if turn is head else lane.pop_next())
    formed.jobs.append(turn)
    _fill(lane, room, now, wanted, formed)
    return formed


def _enters(job: Job, room: Room) -> bool:
    """Whether a batch may begin with it."""
    return job.cost <= room.cost and job.kv_tokens <= room.kv_tokens and room.jobs >= 1


def _goes_first(head: Job, turn: Job, room: Room, passes: int) -> bool:
    """Whether the job due first goes now, be it another's turn: they fit together, it waited long enough, or
    it has its second try, for which others have just made place."""
    limit = min(room.cost, room.soft_cost.get(turn.service_class, room.cost))
    together = (
        head.cost + turn.cost <= min(limit, head.max_batch_cost, turn.max_batch_cost)
        and min(room.jobs, head.max_batch_jobs, turn.max_batch_jobs) >= 2
    )  # of tokens of context more are asked for with the next quantum
    return together or passes >= PASSES or head.attempt > 1


def _alive(
    look: Callable[[], Job | None],
    take: Callable[[], Job],
    now: float,
    wanted: Callable[[Job], bool],
    formed: Formed,
) -> Job | None:
    """What `look` finds; the dead that it finds first are taken out."""
    while job := look():
        if not _dead(job, now, wanted, formed):
            return job
        take()
    return None


def _dead(job: Job, now: float, wanted: Callable[[Job], bool], formed: Formed) -> bool:
    if not wanted(job):
        formed.abandoned.append(job)
        return True
    if job.deadline <= now:
        formed.expired.append(job)
        return True
    return False


def _fill(lane: Lane, room: Room, now: float, wanted: Callable[[Job], bool], formed: Formed) -> None:
    jobs, passed = formed.jobs, list[Job]()
    cost, kv_tokens = jobs[0].cost, jobs[0].kv_tokens
    max_cost = min(room.cost, jobs[0].max_batch_cost)
    max_jobs = min(room.jobs, jobs[0].max_batch_jobs)
    while len(jobs) < max_jobs and cost < max_cost and len(passed) < LOOK_AHEAD and len(lane):
        job = lane.pop_next()
        if _dead(job, now, wanted, formed):
            continue
        limit = min(max_cost, room.soft_cost.get(job.service_class, max_cost))
        fits = (
            cost + job.cost <= limit
            and cost + job.cost <= job.max_batch_cost
            and len(jobs) < job.max_batch_jobs
            and kv_tokens + job.kv_tokens <= room.kv_tokens
        )
        if not fits:
            passed.append(job)
            if limit - cost < limit * FULL_ENOUGH:
                break
            continue
        lane.went(job)
        jobs.append(job)
        cost, kv_tokens = cost + job.cost, kv_tokens + job.kv_tokens
        max_cost, max_jobs = min(max_cost, job.max_batch_cost), min(max_jobs, job.max_batch_jobs)
    for job in passed:
        lane.add(job)
