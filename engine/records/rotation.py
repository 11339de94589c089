"""Old rows leave, whole requests becoming sums by the minute. What a recording holds stays with it."""

from __future__ import annotations

import logging
import math
import sqlite3
import time

from sqlite_utils import Database

from engine.records.tables import KEPT, table

EVERY = 3600.0
"""Seconds between looks for old rows."""

log = logging.getLogger(__name__)

# What is in no finished recording. One that runs holds no more than everything else does.
_LOOSE = """recording is null and recorded_at < :oldest and not exists (
    select 1 from recordings r
    where r.closed in ('stopped', 'interrupted')
        and {table}.recorded_at between r.started_at and r.ended_at)"""

_SUMS = """insert into minutes
    (minute, model, service_class, outcome, requests, items, cost,
     input_tokens, output_tokens, seconds, longest)
select cast(recorded_at / 60 as integer), model, service_class, outcome, count(*), sum(items), sum(cost),
    sum(input_tokens), sum(output_tokens), sum(total_seconds), max(total_seconds)
from requests where {loose} group by 1, 2, 3, 4
on conflict do update set
    requests = requests + excluded.requests, items = items + excluded.items, cost = cost + excluded.cost,
    input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens,
    seconds = seconds + excluded.seconds, longest = max(longest, excluded.longest)"""


def rotate(db: Database, oldest: float) -> int:
    """Delete what is older than `oldest`, seconds since the epoch. How many rows went."""
    told = {"oldest": oldest}
    db.execute(_SUMS.format(loose=_LOOSE.format(table="requests")), told)
    gone = 0
    for name in KEPT:
        before = table(db, name).count if name == "requests" else 0
        table(db, name).delete_where(_LOOSE.format(table=name), told)
        gone += before - table(db, name).count if name == "requests" else 0
    return gone


class Hourly:
    """Keeps so many days. Only the recorder's writer thread uses it."""

    def __init__(self, db: Database, keep_days: int) -> None:
        self._db = db
        self._keep_days = keep_days
        self._due = -math.inf

    def turn(self) -> None:
        """Once an hour; a disk that refuses is tried again an hour later."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + EVERY
        try:
            with self._db.atomic():
                rotate(self._db, time.time() - self._keep_days * 86400)
        except sqlite3.Error as error:
            log.error("old traffic could not be deleted: %s", error)
