"""Jobs and facts for the tables of the scheduler's tests."""

from __future__ import annotations

import itertools
import math

from engine.requests import ServiceClass
from engine.scheduling.lanes import Job, Lane
from engine.units import UnitFacts

STANDARD, INTERACTIVE, BACKGROUND = (
    ServiceClass.STANDARD,
    ServiceClass.INTERACTIVE,
    ServiceClass.BACKGROUND,
)
_numbers = itertools.count()


def job(name: str | None = None, cost: int = 10, due: float = 100.0, **fields: object) -> Job:
    name = name or f"n{next(_numbers)}"
    given = {"unit": "a", "service_class": STANDARD, "arrived": 0.0, "deadline": math.inf} | fields
    return Job(id=name, request=name, cost=cost, due=due, **given)  # type: ignore[arg-type]


def lane(*jobs: Job) -> Lane:
    made = Lane("a")
    for each in jobs:
        made.add(each)
    return made


def names(jobs: object) -> list[str]:
    return [each.id for each in jobs]  # type: ignore[attr-defined]


def facts(unit: str = "a", device_kinds: tuple[str, ...] = ("simulated",), **fields: object) -> UnitFacts:
    return UnitFacts(unit, unit, device_kinds, **fields)  # type: ignore[arg-type]
