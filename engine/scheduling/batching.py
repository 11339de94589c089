"""Which waiting jobs form the next batch. Pure: the clock comes in as `now`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine.requests import ServiceClass
from engine.scheduling.lanes import Job, Lane

LOOK_AHEAD = 16
"""So many jobs that do not fit are passed over for smaller ones behind them. Each of them is due
earlier than what passes it, so it heads a batch soon: nothing is passed over for ever."""

FULL_ENOUGH = 1 / 16
"""With so little of a batch left nobody is passed over for it."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a batch may come to."""

    cost: int
    """What memory was set aside for: never exceeded."""
    soft_cost: Mapping[ServiceClass, int] = field(default_factory=dict)
    """What profile and predicted time ask for, by class: no job of that class joins beyond it, so that
    background that rides along makes no interactive batch long. A job that cannot be split may, alone."""
    jobs: int = 1 << 62
    kv_tokens: int = 1 << 62


@dataclass(slots=True)
class Formed:
    jobs: list[Job] = field(default_factory=list)
    expired: list[Job] = field(default_factory=list)
    abandoned: list[Job] = field(default_factory=list)


def form(lane: Lane, room: Room, now: float, wanted: Callable[[Job], bool]) -> Formed:
    """Take the next batch out of `lane`: the job due first, then the most urgent that fit with it, by turns
    between principals.

    The first goes even when it is over the soft limit, since it cannot be split; when it is over the
    room it stays, and nothing goes. Jobs past their deadline and jobs that nobody waits
    for are taken out on the way and never run.
    """
    formed = Formed()
    first = _first_alive(lane, now, wanted, formed)
    if first is None or first.cost > room.cost or first.kv_tokens > room.kv_tokens or room.jobs < 1:
        return formed
    lane.went(lane.pop_head())
    formed.jobs.append(first)
    _fill(lane, room, now, wanted, formed)
    return formed


def _first_alive(lane: Lane, now: float, wanted: Callable[[Job], bool], formed: Formed) -> Job | None:
    while job := lane.head():
        if not _dead(job, now, wanted, formed):
            return job
        lane.pop_head()
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
    first = formed.jobs[0]
    cost, kv_tokens = first.cost, first.kv_tokens
    max_cost = min(room.cost, first.max_batch_cost)
    max_jobs = min(room.jobs, first.max_batch_jobs)
    passed: list[Job] = []
    while len(lane) and len(formed.jobs) < max_jobs and len(passed) < LOOK_AHEAD and cost < max_cost:
        job = lane.pop_next()
        if _dead(job, now, wanted, formed):
            continue
        limit = min(max_cost, room.soft_cost.get(job.service_class, max_cost))
        fits = (
            cost + job.cost <= min(limit, job.max_batch_cost)
            and len(formed.jobs) < job.max_batch_jobs
            and kv_tokens + job.kv_tokens <= room.kv_tokens
        )
        if not fits:
            passed.append(job)
            if limit - cost < limit * FULL_ENOUGH:
                break
            continue
        lane.went(job)
        formed.jobs.append(job)
        cost, kv_tokens = cost + job.cost, kv_tokens + job.kv_tokens
        max_cost, max_jobs = min(max_cost, job.max_batch_cost), min(max_jobs, job.max_batch_jobs)
    for job in passed:
        lane.add(job)
