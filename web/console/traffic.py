"""`/console/requests`: the last requests, the slowest of them, those that failed, and one of them in detail.

They are read from the journal in memory: it is there with recording off, and nobody who looks reads from
the disk that the recorder writes to. It forgets with a restart; `traffic.db` does not.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from aiohttp import web

from engine.events import BatchDone, RequestDone
from engine.journal import Journal
from web.console import pages
from web.console.hub import HUB
from web.errors import NotFound

SHOWN = 100
KINDS = ("recent", "slowest", "failed")
WIDTH = 1000


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    seconds: float | None
    """None where it is not measured for one request."""
    x: float
    width: float


async def show(request: web.Request) -> web.Response:
    hub, query = request.app[HUB], request.query
    kind = query.get("kind", "") if query.get("kind") in KINDS else "recent"
    model = query.get("model", "")[:300]
    journal = hub.engine.closely.journal
    found = list(chosen(journal, kind, model))
    context = {
        "kind": kind,
        "kinds": KINDS,
        "model": model,
        "names": [spec.id for spec in hub.engine.catalog],
        "found": found,
        "longest": max((done.total_seconds for done in found), default=0.0),
        "stages": stages,
        "wall": hub.wall,
        "ended": journal.ended,
    }
    return await pages.page(request, "requests", context, cues=("requests",))


def chosen(journal: Journal, kind: str, model: str) -> Iterator[RequestDone]:
    source = journal.failed if kind == "failed" else journal.requests
    kept = (done for done in reversed(source) if not model or done.model == model)
    if kind == "slowest":
        yield from heapq.nlargest(SHOWN, kept, key=lambda done: done.total_seconds)
        return
    yield from (done for done, _ in zip(kept, range(SHOWN), strict=False))


async def one(request: web.Request) -> web.Response:
    """Raises NotFound for one that is forgotten."""
    hub, name = request.app[HUB], request.match_info["request"]
    journal = hub.engine.closely.journal
    everyone = (*reversed(journal.requests), *reversed(journal.failed))
    done = next((each for each in everyone if each.request == name), None)
    if done is None:
        raise NotFound(f"Request {name[:100]!r} is not remembered: only the last ones are.")
    context = {
        "done": done,
        "stages": stages(done, done.total_seconds),
        "batches": list(_batches(journal, done)),
        "mates": mates(journal, done),
        "wall": hub.wall,
    }
    return await pages.page(request, "request", context, at="requests")


def stages(done: RequestDone, longest: float) -> list[Stage]:
    """What its time went to, one after the other, on a line `longest` seconds long."""
    known = {
        "prepare": done.prepare_seconds,
        "queue": done.queue_seconds,
        "load": done.load_seconds,
        "run": done.run_seconds,
    }
    known["other"] = max(0.0, done.total_seconds - sum(known.values()))
    found, x = [], 0.0
    for name, seconds in known.items():
        width = WIDTH * seconds / longest if longest else 0.0
        width = min(width, WIDTH - x)
        found.append(Stage(name, seconds, round(x, 1), round(width, 1)))
        x += width
    return found


def mates(journal: Journal, done: RequestDone) -> list[RequestDone]:
    """The other requests that had jobs in the same batches, the newest first."""
    shared = {batch for batch, _ in done.batches}
    others = (each for each in reversed(journal.requests) if each.request != done.request)
    kept = (each for each in others if any(batch in shared for batch, _ in each.batches))
    return [each for each, _ in zip(kept, range(SHOWN), strict=False)]


def _batches(journal: Journal, done: RequestDone) -> Iterator[tuple[int, int, BatchDone | None]]:
    """Each batch that it had jobs in: its number, how many, and the batch where it is remembered."""
    mine = dict(done.batches)
    known = {batch.batch: batch for batch in journal.batches if batch.batch in mine}
    for number, jobs in done.batches[:SHOWN]:
        yield number, jobs, known.get(number)
