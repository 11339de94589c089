"""What all tabs are shown, looked up once for all of them: rows and bars, what changed in them, and cues.

One task looks twice a second while somebody watches, and once a minute otherwise, for the history.
"""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import dataclass, field

import anyio
from aiohttp import web

from engine.errors import EngineError
from engine.orders import Action
from engine.view import EngineView
from engine.wishes import Audited
from web.console import words
from web.console.bars import Bar, bars
from web.console.rows import Row, Sources, Table
from web.console.sampler import Sampler
from web.console.tail import Tail
from web.engine import Engine
from web.keys import ENGINE
from web.weights import MISSING, Weights

log = logging.getLogger(__name__)

FRAME = 0.5
"""Seconds between looks while somebody watches: tabs hear at most twice a second."""
SAMPLE = 1.0
"""Seconds between samples of the history meanwhile."""
ASLEEP = 60.0
PINNERS = 1000
"""Acts among which whoever pinned a unit is looked for."""

EVERYTHING = "*"


@dataclass(eq=False, slots=True)
class Watcher:
    """One tab: what it has not been told yet. Newer values take the place of older ones, so it is bounded."""

    cues: frozenset[str]
    """What it wants to be told of without being told what: its panels ask for themselves again."""
    rows: bool
    """Whether it shows the table of models and the devices."""
    series: tuple[str, ...]
    frame: int = 0
    """All cells up to this frame have been told."""
    heard: dict[str, object] = field(default_factory=dict)
    """The cues as they were when it was told last."""
    drawn: dict[str, float] = field(default_factory=dict)
    """Up to when each series has been told."""
    news: anyio.Event = field(default_factory=anyio.Event)


class Hub:
    def __init__(self, engine: Engine, weights: Weights) -> None:
        self.engine = engine
        self.sampler = Sampler()
        self.boot = secrets.token_hex(4)
        self.frame = 0
        self._table = Table()
        self.bars: list[Bar] = []
        self.cues: dict[str, object] = {}
        self.view: EngineView = EngineView((), ())
        self.points: int = 0
        """Grows with each sample of the history."""
        self.stopping = False
        self._watchers: set[Watcher] = set()
        self._wake = anyio.Event()
        self._cells: dict[str, object] = {}
        self._changed: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._weights = weights
        self._missing: frozenset[str] = frozenset()
        self._looked = self._sampled = -1e9
        self._acted = -1
        self._offset = time.time() - engine.now()
        """From the engine's clock to seconds since the epoch."""
        self._pinners: dict[str, Audited] = {}
        self.tail = Tail(lambda: engine.catalog.models)

    def wall(self, at: float) -> float:
        """A time of the engine's clock as seconds since the epoch."""
        return at + self._offset

    @property
    def rows(self) -> list[Row]:
        return self._table.rows

    @property
    def watching(self) -> int:
        return len(self._watchers)

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:
                # Nobody waits for this task, so nobody else would tell; tabs say that they are stale.
                log.exception("the console could not look")
            for watcher in self._watchers:
                watcher.news.set()
            self._wake = anyio.Event()
            with anyio.move_on_after(FRAME if self._watchers else ASLEEP):
                await (anyio.sleep_forever() if self._watchers else self._wake.wait())

    async def look(self) -> None:
        """See how everything is now, unless that was done a moment ago."""
        now = self.engine.now()
        if now - self._looked < FRAME / 2:
            return
        self._looked = now
        view = self.view = self.engine.view()
        if view.acted != self._acted:
            self._acted = view.acted
            self.tail.forget(self.engine.catalog.models)
            await self._read_pinners()
        journal = self.engine.closely.journal
        if now - self._sampled >= SAMPLE * 0.9:
            self._sampled = now
            self.sampler.look(now, time.time(), view, journal)
            self.points += 1
        self._offset = _steady(self._offset, time.time() - now)
        self._table.update(self._sources(view, now))
        self.bars = bars(view)
        self._compare(self._make_cells(view), self._make_cues(view))
        weights = await self._weights.told()  # for the next look: this one kept nobody waiting
        self._missing = frozenset(model for model, where in weights.items() if where == MISSING)

    def since(self, frame: int, whole: bool) -> dict[str, object]:
        """Cells that have changed since a frame; only those that every page has, if not `whole`."""
        found = (name for name, at in self._changed.items() if at > frame)
        return {name: self._cells[name] for name in found if whole or name.startswith("s-")}

    def doubt(self) -> None:
        """Somebody acted here: what was seen a moment ago is not shown to them."""
        self._looked = -1e9

    def watch(self, watcher: Watcher) -> None:
        self._watchers.add(watcher)
        self._wake.set()

    def leave(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def stop(self) -> None:
        """Every stream ends: tabs would keep the server from stopping for as long as they like."""
        self.stopping = True
        for watcher in self._watchers:
            watcher.news.set()

    def _make_cells(self, view: EngineView) -> dict[str, object]:
        waiting = sum(row.waiting for row in self.rows)
        paused = bool(self.rows) and all(row.paused for row in self.rows)
        cells: dict[str, object] = {
            "s-waiting": words.whole(waiting),
            "s-running": words.whole(sum(row.in_flight for row in self.rows)),
            "s-rate": words.rate(self.sampler.rate),
            "s-held": words.size(view.held_bytes),
            "s-loaded": words.whole(sum(row.state == "loaded" for row in self.rows)),
            "s-failed": words.whole(sum(row.state == "failed" for row in self.rows)),
            "s-intake": "draining" if not view.accepting else "paused" if paused else "taking requests",
        }
        for bar in self.bars:
            cells |= bar.cells()
        for row in self._table.fresh:
            cells |= row.cells()
        return cells

    def _compare(self, cells: dict[str, object], cues: dict[str, object]) -> None:
        """Cells of models that are gone stay: no page has a place for them."""
        fresh = {name: value for name, value in cells.items() if self._cells.get(name) != value}
        if fresh or cues != self.cues:
            self.frame += 1
            self.cues = cues
            self._changed |= dict.fromkeys(fresh, self.frame)
            self._cells |= fresh

    def _make_cues(self, view: EngineView) -> dict[str, object]:
        """Of each panel something that differs when the panel would look different."""
        journal = self.engine.closely.journal
        batches = journal.batches[-1].batch if journal.batches else 0
        queues = sum(row.waiting + row.in_flight for row in self.rows)
        cues: dict[str, object] = {
            "models": (view.catalog.version, tuple((row.id, row.state, row.pinned) for row in self.rows)),
            "queues": (batches, queues, self.points if queues else 0),
            "devices": tuple((d.name, *d.lines.values(), d.unattributed_bytes) for d in view.devices),
            "requests": journal.ended,
            "audit": view.acted,
        }
        for row in self._table.fresh:
            cues[f"model:{row.id}"] = (self.frame, journal.changed, self.tail.heard)
        return {**self.cues, **cues}

    def _sources(self, view: EngineView, now: float) -> Sources:
        closely, operators = self.engine.closely, self.engine.operators
        for model in view.models:
            self._numbers.setdefault(model.id, len(self._numbers))
        leaving = {
            (left.unit, device.name): place
            for device in view.devices
            for place, left in enumerate(closely.leaving(device.name), 1)
        }
        return Sources(
            catalog=self.engine.catalog,
            view=view,
            sampler=self.sampler,
            journal=closely.journal,
            numbers=self._numbers,
            versions={model.id: operators.version(model.id) for model in view.models},
            pinners=self._pinners,
            settings_pins=self.engine.settings.pins,
            leaving=leaving,
            now=now,
            wall=now + self._offset,
            missing=self._missing,
        )

    async def _read_pinners(self) -> None:
        try:
            acts = await self.engine.operators.history(PINNERS)
        except EngineError:
            return  # the console goes on without knowing who
        self._pinners = pinners(acts)


def pinners(acts: list[Audited]) -> dict[str, Audited]:
    """The act that pinned each unit last; `acts` has the newest first."""
    found: dict[str, Audited] = {}
    for act in reversed(acts):
        if act.action == Action.PIN and act.outcome == "ok":
            found[act.target] = act
    return found


HUB: web.AppKey[Hub] = web.AppKey("hub", Hub)


def _steady(known: float, seen: float) -> float:
    """A clock that was set counts; one that trembles would have every time on the page change."""
    return known if abs(known - seen) < 1.0 else seen


def row_of(hub: Hub, model: str) -> Row | None:
    return next((row for row in hub.rows if row.id == model), None)


def engine_of(request: web.Request) -> Engine:
    return request.app[ENGINE]
