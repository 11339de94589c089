"""Times of day at which something is to happen, as an operator writes them: `Mon-Fri 08:00`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from cronsim import CronSim

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LONGEST_JUMP = timedelta(days=8)
"""A clock that was put forward by more brings back nothing older: every time of day is within it."""

_WRITTEN = re.compile(r"\s*(?:(?P<days>[A-Za-z,\- ]+?)\s+)?(?P<hour>\d{1,2}):(?P<minute>\d{2})\s*")


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """Some days at one time, in cron's own words."""

    cron: str

    def next_after(self, moment: datetime) -> datetime:
        """The first time after `moment`, in its zone.

        A time that the clock skips in spring comes right after the gap; one that it has twice comes once.
        """
        return next(CronSim(self.cron, moment))

    def last_until(self, moment: datetime, since: datetime) -> datetime | None:
        """The latest time after `since` and not after `moment`, if there is one."""
        found, at = None, max(since, moment - LONGEST_JUMP)
        while (at := self.next_after(at)) <= moment:
            found = at
        return found


@lru_cache(maxsize=1000)
def parse(written: str) -> TimeOfDay:
    """Raises ValueError that says what can be written."""
    found = _WRITTEN.fullmatch(written)
    if not found or int(found["hour"]) > 23 or int(found["minute"]) > 59:
        raise ValueError(f"{written!r} is no time; write 22:00, or Mon-Fri 08:00, or Sat,Sun 10:30")
    days = ",".join(map(str, _days(found["days"]))) if found["days"] else "*"
    return TimeOfDay(f"{int(found['minute'])} {int(found['hour'])} * * {days}")


def _days(written: str) -> list[int]:
    """Numbers of the days as cron counts them, Sunday being 0."""
    days: set[int] = set()
    for part in written.split(","):
        first, *rest = (name.strip().lower() for name in part.split("-", 1))
        last = rest[0] if rest else first
        for name in (first, last):
            if name not in DAYS:
                raise ValueError(f"{name!r} is no day; there are {', '.join(day.title() for day in DAYS)}")
        start, end = DAYS.index(first), DAYS.index(last)
        days |= {(start + n) % 7 for n in range((end - start) % 7 + 1)}
    return sorted((day + 1) % 7 for day in days)


@dataclass(frozen=True, slots=True)
class Event:
    """What is to happen to a model whenever one of these times comes."""

    model: str
    action: str
    times: tuple[str, ...]


class Timetable:
    """Which events have come since the last look. Each time comes once, however the clock is put."""

    def __init__(self, now: float, zone: tzinfo) -> None:
        self._zone = zone
        self._looked = self._moment(now)

    def due(self, events: Iterable[Event], now: float) -> list[Event]:
        """Of each model the last of its events that came since the last look; `now` is wall-clock time.

        A clock that was put back has them come no second time, unless it was wrong by more than a day.
        """
        moment, since = self._moment(now), self._looked
        self._looked = moment if since - moment > timedelta(days=1) else max(since, moment)
        came: dict[str, tuple[datetime, Event]] = {}
        for event in events:
            times = [parse(time).last_until(moment, since) for time in event.times]
            last = max((time for time in times if time), default=None)
            if last and (event.model not in came or came[event.model][0] <= last):
                came[event.model] = (last, event)
        return [event for _, event in sorted(came.values(), key=lambda pair: pair[0])]

    def _moment(self, now: float) -> datetime:
        return datetime.fromtimestamp(now, UTC).astimezone(self._zone)
