"""Times of day: what can be written, when it comes, and that it comes once however the clock is put."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from engine.schedule import Event, Timetable, parse

BERLIN = ZoneInfo("Europe/Berlin")
HOUR, DAY = 3600.0, 86400.0


def at(text: str, zone=BERLIN) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone)


def coming(written: str, since: str, count: int) -> list[str]:
    moment, found = at(since), []
    for _ in range(count):
        moment = parse(written).next_after(moment)
        found.append(f"{moment:%a %d %H:%M%z}")
    return found


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("22:00", ["Fri 02 22:00+0100", "Sat 03 22:00+0100"]),
        ("Mon-Fri 08:00", ["Fri 02 08:00+0100", "Mon 05 08:00+0100"]),
        ("Sat,Sun 9:30", ["Sat 03 09:30+0100", "Sun 04 09:30+0100"]),
        ("fri-mon 00:00", ["Sat 03 00:00+0100", "Sun 04 00:00+0100"]),
        ("Sun 23:59", ["Sun 04 23:59+0100", "Sun 11 23:59+0100"]),
    ],
)
def test_a_time_comes_on_its_days(written, expected):
    assert coming(written, "2026-01-02T00:00", 2) == expected


@pytest.mark.parametrize(
    "written", ["24:00", "8", "08:60", "Mond 08:00", "08:00 Mon", "", "Mon- 08:00", "-1:00"]
)
def test_what_is_no_time_is_refused_with_what_would_do(written):
    with pytest.raises(ValueError, match=r"write 22:00|there are Mon, Tue"):
        parse(written)


def test_a_time_that_the_clock_skips_in_spring_comes_after_the_gap():
    assert coming("02:30", "2026-03-28T12:00", 2) == ["Sun 29 03:00+0200", "Mon 30 02:30+0200"]


def looks(table: Timetable, event: Event, moments: list[float]) -> list[float]:
    """When, of these looks, the event was due."""
    return [now for now in moments if table.due([event], now)]


def test_a_time_that_the_clock_has_twice_in_autumn_comes_once():
    event = Event("a", "unload", ("02:30",))
    start = at("2026-10-25T00:00").timestamp()
    moments = [start + 60 * n for n in range(6 * 60)]

    due = looks(Timetable(start, BERLIN), event, moments)

    assert [datetime.fromtimestamp(now, UTC).hour for now in due] == [0]  # 02:30 of summer


def test_an_event_comes_once_when_the_clock_is_put_back():
    start = at("2026-01-05T07:00").timestamp()
    moments = [
        start,
        start + 1.1 * HOUR,
        start + 0.5 * HOUR,
        start + 1.2 * HOUR,
        start + 1.0 * DAY + 1.1 * HOUR,
    ]

    due = looks(Timetable(start, BERLIN), Event("a", "preheat", ("08:00",)), moments)

    assert due == [moments[1], moments[4]]


def test_after_a_clock_that_was_wrong_by_more_than_a_day_events_come_again():
    start = at("2026-01-05T07:00").timestamp()
    moments = [start + 300 * DAY, start, start + 2 * HOUR]

    due = looks(Timetable(start, BERLIN), Event("a", "preheat", ("08:00",)), moments)

    assert due == [moments[0], moments[2]]


def test_of_all_that_was_missed_only_the_last_of_a_model_comes():
    start = at("2026-01-05T07:00").timestamp()
    events = [
        Event("a", "unload", ("22:00",)),
        Event("a", "preheat", ("Mon-Fri 08:00",)),
        Event("b", "preheat", ("08:00", "12:00")),
    ]
    table = Timetable(start, BERLIN)

    due = table.due(events, start + 4 * DAY + 16 * HOUR)  # Friday, 23:00

    assert [(event.model, event.action) for event in due] == [("b", "preheat"), ("a", "unload")]
    assert table.due(events, start + 4 * DAY + 16.1 * HOUR) == []
