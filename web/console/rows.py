"""The table of models: what each row says, in words and numbers that are ready to be read. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.catalog import Catalog, ModelSpec
from engine.journal import Journal, Tally
from engine.units import base, parted
from engine.view import EngineView, ModelView, ResidencyView
from engine.wishes import Audited
from web.console import words
from web.console.sampler import Recent, Sampler

STATES = ("loaded", "loading", "unloading", "failed", "available")
ORDER = {state: place for place, state in enumerate(STATES)}
SORTS = ("activity", "name", "state", "bytes", "waiting", "rate", "p99", "share", "cold", "used")


@dataclass(frozen=True, slots=True)
class Row:
    """One model. Texts are what is shown; numbers are what is sorted by."""

    number: int
    """Of the model, for as long as the server runs: its cells are named by it."""
    id: str
    state: str
    pinned: bool
    paused: bool
    why: str
    where: str
    size_bytes: int
    waiting: int
    oldest: float
    in_flight: int
    rate: float
    p50: float | None
    p99: float | None
    share: float | None
    cold: int
    used: float | None
    """Seconds since the epoch at which its last request came."""
    loads: int
    evictions: int
    version: int
    thrashing: bool
    error: str
    service_class: str
    tasks: tuple[str, ...]
    remote: bool
    """Its weights come from a hub first, and not from a package."""

    def cells(self) -> dict[str, object]:
        """What of it changes while it is looked at, by the ids of the elements that show it."""
        name = f"m{self.number}"
        return {
            name: [self.state, int(self.pinned), int(self.paused)],
            f"{name}-why": self.why,
            f"{name}-where": self.where,
            f"{name}-bytes": self.bytes,
            f"{name}-q": self.queue,
            f"{name}-old": self.age,
            f"{name}-run": words.some(self.in_flight),
            f"{name}-rate": self.rates,
            f"{name}-p50": self.median,
            f"{name}-p99": self.tail,
            f"{name}-share": self.part,
            f"{name}-cold": words.some(self.cold),
            f"{name}-used": words.stamp(self.used),
            f"{name}-loads": words.whole(self.loads),
            f"{name}-evictions": words.whole(self.evictions),
            f"{name}-v": str(self.version),
        }

    @property
    def bytes(self) -> str:
        return words.size(self.size_bytes) if self.size_bytes else words.NOTHING

    @property
    def queue(self) -> str:
        return words.some(self.waiting)

    @property
    def age(self) -> str:
        return words.span(round(self.oldest, 1)) if self.waiting else words.NOTHING

    @property
    def rates(self) -> str:
        return words.rate(self.rate) if self.rate >= 0.05 else words.NOTHING

    @property
    def median(self) -> str:
        return words.NOTHING if self.p50 is None else words.span(self.p50)

    @property
    def tail(self) -> str:
        return words.NOTHING if self.p99 is None else words.span(self.p99)

    @property
    def part(self) -> str:
        return words.NOTHING if self.share is None else words.share(self.share)


@dataclass(frozen=True, slots=True)
class Sources:
    """What rows are made of."""

    catalog: Catalog
    view: EngineView
    sampler: Sampler
    journal: Journal
    numbers: Mapping[str, int]
    versions: Mapping[str, int]
    pinners: Mapping[str, Audited]
    """The act that pinned each unit."""
    settings_pins: Sequence[str]
    leaving: Mapping[tuple[str, str], int]
    """Place in the order of leaving, from 1, by unit and device."""
    now: float
    wall: float
    missing: frozenset[str] = frozenset()
    """Models whose weights are not on this machine and are not fetched."""


class Table:
    """All rows, in the catalogue's order. One that would say the same again is not made again."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.fresh: list[Row] = []
        """Those that say something else than before."""
        self._kept: dict[str, tuple[object, Row]] = {}

    def update(self, of: Sources) -> None:
        before, self._kept, self.rows, self.fresh = self._kept, {}, [], []
        for model in of.view.models:
            key = _key(model, of)
            known, row = before.get(model.id, (None, None))
            if row is None or known != key:
                made = _row(model, of)
                if made != row:
                    self.fresh.append(made)
                    row = made
            self._kept[model.id] = (key, row)
            self.rows.append(row)


def _key(model: ModelView, of: Sources) -> object:
    """Differs when the row may. What is somewhere always does: it says how long it has been idle."""
    recent, tally = of.sampler.models.get(model.id), of.journal.models.get(model.id)
    known = recent and (recent.rate, recent.p50, recent.p99, recent.share)
    return (model, of.versions.get(model.id, 0), known, tally and tally.ended, model.id in of.missing)


def _row(model: ModelView, of: Sources) -> Row:
    spec = of.catalog.models.get(model.id)
    recent = of.sampler.models.get(model.id) or Recent()
    tally = of.journal.models.get(model.id) or Tally()
    here = [r for r in model.residencies if r.weights_bytes]
    error = str((model.last_error or {}).get("message", ""))
    return Row(
        number=of.numbers[model.id],
        id=model.id,
        state=model.state,
        pinned=any(r.pinned for r in model.residencies if not parted(r.unit)[1]),
        paused=model.paused,
        why="; ".join(_reasons(model, error, of)),
        where=", ".join(sorted({r.device for r in here})) or words.NOTHING,
        size_bytes=sum(r.weights_bytes for r in here),
        waiting=model.waiting,
        oldest=model.oldest,
        in_flight=model.in_flight,
        rate=recent.rate,
        p50=recent.p50,
        p99=recent.p99,
        share=recent.share if recent.seconds else None,
        cold=tally.cold,
        used=of.wall - (of.now - tally.last) if tally.last else None,
        loads=model.loads,
        evictions=model.evictions,
        version=of.versions.get(model.id, 0),
        thrashing=any(r.thrashing for r in model.residencies),
        error=error,
        service_class=spec.service_class if spec else "",
        tasks=tuple(task.value for task in spec.tasks) if spec else (),
        remote=spec is not None and _remote(spec),
    )


def _remote(spec: ModelSpec) -> bool:
    return not (spec.sources[0].directory or any(source.wheel for source in spec.sources))


def _reasons(model: ModelView, error: str, of: Sources) -> Iterable[str]:
    """Why it is where it is. What failed is told once, though the error and the residency both say it."""
    said = [error] if error else ["no weights here"] if model.id in of.missing else []
    said += [why(r, of) for r in model.residencies if not parted(r.unit)[1]]
    if adapters := sum(bool(parted(r.unit)[1]) and r.weights_bytes > 0 for r in model.residencies):
        said.append("an adapter" if adapters == 1 else f"{adapters} adapters")
    if any(r.thrashing for r in model.residencies):
        said.append("thrashing: loaded and evicted over and over")
    if model.paused:
        said.append("paused: new requests are refused")
    return dict.fromkeys(each for each in said if each)


def why(residency: ResidencyView, of: Sources) -> str:
    """Why one unit is on its device, and whether it is about to leave."""
    if residency.pinned:
        return _pinned(residency, of)
    if residency.state != "ready" or residency.why == "has work":
        return residency.why
    place = of.leaving.get((residency.unit, residency.device))
    idle = f"idle {words.span(residency.idle - residency.idle % 60)}" if residency.idle >= 60 else "idle"
    known = "" if residency.why.startswith("used before") else residency.why
    leaves = {None: "", 1: "next to leave"}.get(place, f"{place}. to leave")
    return ", ".join(part for part in (known or idle, leaves) if part)


def _pinned(residency: ResidencyView, of: Sources) -> str:
    unit = base(residency.unit)
    act = of.pinners.get(unit)
    if act is not None:
        reason = f": {act.reason}" if act.reason else ""
        return f"pinned by {act.who.removeprefix('user:')} {words.ago(of.wall - act.recorded_at)}{reason}"
    return "pinned by the settings" if unit in of.settings_pins else residency.why


def chosen(found: list[Row], query: str, state: str, sort: str) -> list[Row]:
    """Those that the filter leaves, in the order that was asked for."""
    words_of = query.lower().split()
    kept = [row for row in found if _matches(row, words_of) and _in_state(row, state)]
    return sorted(kept, key=_KEYS.get(sort, _activity))


def _matches(row: Row, query: list[str]) -> bool:
    text = " ".join((row.id, row.state, row.where, row.why, row.service_class, *row.tasks)).lower()
    return all(word in text for word in query)


def _in_state(row: Row, state: str) -> bool:
    special = {"pinned": row.pinned, "paused": row.paused, "busy": row.waiting + row.in_flight > 0}
    return not state or special.get(state, row.state == state)


def _activity(row: Row) -> tuple[object, ...]:
    """What works, is resident or could be without a hub first; steady, so that rows do not jump while they
    are read."""
    return (ORDER.get(row.state, 9), not row.pinned, row.remote, row.id)


_KEYS = {
    "name": lambda row: (row.id,),
    "state": _activity,
    "bytes": lambda row: (-row.size_bytes, row.id),
    "waiting": lambda row: (-row.waiting, -row.in_flight, row.id),
    "rate": lambda row: (-row.rate, row.id),
    "p99": lambda row: (-(row.p99 or 0.0), row.id),
    "share": lambda row: (-(row.share or 0.0), row.id),
    "cold": lambda row: (-row.cold, row.id),
    "used": lambda row: (-(row.used or 0.0), row.id),
}
