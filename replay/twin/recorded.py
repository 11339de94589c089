"""A server as a recording measured it: run times, loads, peaks, and how it was when the recording began."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from engine.catalog import Catalog, ModelSpec
from engine.config import Settings
from engine.memory.footprint import Footprint
from engine.units import Units, base, on_devices, units_of
from replay.recording import Recording
from replay.service import ServiceCurve
from replay.trace import BadTrace, Floats
from replay.twin import coming, described, interference, spells
from replay.twin.company import Occupancy
from replay.twin.server import Card, Server, Unit
from replay.twin.timing import FEWEST, Loads, Seen, Timing

DISK = 1e9
"""Bytes a second that a load is taken to come at when none was ever seen."""

THERE = ("ready", "leaving")


Footprints = Callable[[ModelSpec], Footprint | None]
"""What the files of an entry's weights say, where they are here."""


def measured(recording: Recording, footprints: Footprints = lambda spec: None) -> Server:
    """The server that was recorded. Units that never ran while it was are not in it.

    Raises BadTrace for a recording that does not say how its server was, or in which nothing ran.
    """
    snapshot = recording.snapshot
    if not snapshot.get("devices"):
        raise BadTrace(
            f"{recording.name} does not say what server it is of, so nothing can be planned by it."
        )
    settings, models = _read(recording)
    measuring = Measuring(recording, footprints)
    cards = [_card(told, measuring) for told in snapshot["devices"]]
    catalog = on_devices(Catalog({spec.id: spec for spec in models}, {}), {card.kind for card in cards})
    known = Units(catalog, settings.max_batch_cost)
    found = {
        name: unit
        for spec in catalog
        for name, profile in units_of(spec).items()
        if (unit := measuring.unit(spec, profile, known)) is not None
    }
    if not found:
        raise BadTrace(f"No model ran while {recording.name} was recorded, so nothing can be planned by it.")
    made = described.server(settings, cards, found, int(snapshot.get("host_memory", 0)))
    return replace(
        made,
        together=coming.together(recording),
        pins=tuple(u for pin in snapshot["pins"] if (u := pin["unit"]) in found),
        resident=tuple(
            dict.fromkeys(
                r["unit"] for r in snapshot["residents"] if r["state"] in THERE and r["unit"] in found
            )
        ),
        curves={(c["unit"], c["device"]): c["points"] for c in snapshot["curves"] if c["unit"] in found},
        workspaces={
            (w["unit"], w["device"]): w["seen"] for w in snapshot["workspaces"] if w["unit"] in found
        },
        origin=f"{recording.name}: {len(recording.batches['at'])} batches, {len(recording.changes)} changes "
        "of residency",
        assumed=tuple(dict.fromkeys(measuring.assumed)),
        measured=tuple(measuring.measured),
    )


def _card(told: Mapping[str, Any], measuring: Measuring) -> Card:
    bytes_ = told["total_bytes"], told["context_bytes"], told["host_tier"]
    seen = measuring.device(told["name"], told["slots"])
    return Card(told["name"], told["kind"], told["slots"], *bytes_, **seen)


def _read(recording: Recording) -> tuple[Settings, list[ModelSpec]]:
    snapshot = recording.snapshot
    known = {name: value for name, value in snapshot["settings"].items() if name in Settings.model_fields}
    try:
        models = [ModelSpec.model_validate(entry) for entry in snapshot["models"]]
        return Settings.model_validate(known), models
    except ValidationError as error:
        said = error.errors()[0]
        where = ".".join(map(str, said["loc"]))
        text = f"{recording.name} has a snapshot that this version cannot read: {where}: {said['msg']}"
        raise BadTrace(text) from None


@dataclass(slots=True)
class Measuring:
    """Units as they were seen, one after the other, and what had to be assumed for them."""

    recording: Recording
    footprints: Footprints
    assumed: list[str] = field(default_factory=list)
    measured: list[str] = field(default_factory=list)
    """What was learned of the devices, in words."""
    _batches: NDArray[Any] = field(init=False)
    _requests: NDArray[Any] = field(init=False)
    """The unit of each row."""
    _all: list[dict[str, Any]] = field(init=False)
    """Changes of residency; the seconds of loads are those of a device on which nothing ran."""
    _changes: Mapping[str, list[dict[str, Any]]] = field(init=False)
    _queued: dict[int, float] = field(init=False)
    """When the first of a batch's jobs came into the queue, by its number."""
    _preparing: coming.Preparing = field(init=False)
    _loaded: bool = field(init=False)
    """Whether any load was seen."""
    _bandwidth: float = field(init=False)
    """Bytes a second, of all loads that were seen."""
    _seconds: Floats = field(init=False)
    """Of each batch, as if it had been alone on its device. `device` puts this right, and `_all`."""

    def __post_init__(self) -> None:
        recording = self.recording
        self._batches = np.array([base(unit) for unit in recording.batches["unit"]], dtype=np.object_)
        self._requests = np.array([base(unit) for unit in recording.requests["unit"]], dtype=np.object_)
        self._all = [dict(change) for change in recording.changes]
        self._changes = _by_unit(self._all)
        self._queued = coming.queued(recording)
        self._preparing = coming.Preparing.of(recording)
        self._seconds = recording.batches["seconds"].astype(np.float64)
        loads = [c for c in self._all if c["event"] == "loaded" and c.get("weights_bytes")]
        rates = [c["weights_bytes"] / c["seconds"] for c in loads if c.get("seconds")]
        self._loaded, self._bandwidth = bool(rates), float(np.median(rates)) if rates else DISK

    def device(self, name: str, slots: int) -> dict[str, Any]:
        """What a card says of itself: how much things slow each other there, and what each batch waits for.
        Times of its batches and loads are put right by that.

        Quanta of a model that generates last as long as they are told to, so that they say nothing.
        """
        batches = self.recording.batches
        here = np.flatnonzero(batches["device"] == name)
        loads = [c for c in self._all if c["event"] == "loaded" and c["device"] == name]
        took = np.array([c.get("seconds", 0.0) for c in loads], dtype=np.float64)
        ended = np.array([c["at"] for c in loads], dtype=np.float64)
        began, seconds = batches["at"][here], self._seconds[here]
        occupancy = Occupancy.of(began, seconds, ended - took, took, slots)
        beside, whole = occupancy.beside_batches(began, seconds), batches["running"][here] == 0
        costs = np.maximum(batches["cost"][here], 1).astype(np.float64)
        found = interference.learned(
            self._batches[here][whole], costs[whole], seconds[whole], beside.take(whole)
        )
        self._seconds[here] = seconds * beside.rates(np.array(found.factors), found.loading)
        busy = occupancy.beside_loads(ended - took, took)
        for change, share in zip(loads, busy.tolist(), strict=True):
            change["seconds"] = change.get("seconds", 0.0) * (1 - share + share / found.loading)
        measured, guessed = found.words(name)
        self.measured += measured
        self.assumed += guessed
        lived = self._spells(name, here[whole])
        return {
            "slowed": found.factors,
            "loading": found.loading,
            "handover": self._handover(here),
            "spells": tuple(lived.tolist()),
        }

    def _spells(self, name: str, rows: NDArray[np.intp]) -> Floats:
        """How slow the machine was over time, by batches of many units; their times are put right by that."""
        batches, off = self.recording.batches, np.zeros(len(rows))
        units = self._batches[rows]
        for unit in dict.fromkeys(units.tolist()):
            mine = np.flatnonzero(units == unit)
            costs = np.maximum(batches["cost"][rows[mine]], 1)
            usual = ServiceCurve.fit(costs, self._seconds[rows[mine]]).usual(costs)
            off[mine] = np.log(np.maximum(self._seconds[rows[mine]], 1e-9) / np.maximum(usual, 1e-9))
        factors, when = spells.learned(batches["at"][rows], off)
        self._seconds[rows] /= when
        if len(factors):
            low, high = np.quantile(factors, (0.05, 0.95))
            told = f"{name}: in spells all batches take {low:.2f} to {high:.2f} times as long as usual"
            self.measured.append(told)
        return factors

    def _handover(self, here: NDArray[np.intp]) -> float:
        """Seconds from a batch's end to the next one's begin in its slot, where a job waited and the unit
        stayed: the lower quartile, since some of them waited for memory."""
        batches = self.recording.batches
        rows = here[np.lexsort((batches["at"][here], batches["slot"][here]))]
        ends = (batches["at"] + batches["seconds"])[rows]
        same = [batches[name][rows][1:] == batches[name][rows][:-1] for name in ("slot", "unit")]
        queued = np.array([self._queued.get(number, np.inf) for number in batches["batch"][rows].tolist()])
        gaps = (batches["at"][rows][1:] - ends[:-1])[same[0] & same[1] & (queued[1:] < ends[:-1])]
        return max(0.0, round(float(np.quantile(gaps, 0.25)), 6)) if len(gaps) else 0.0

    def unit(self, spec: ModelSpec, profile: str | None, known: Units) -> Unit | None:
        """None for one that never ran, or of which no size is known."""
        name = spec.unit(profile)
        timings = self._timings(name, known.facts(name).generative)
        footprint = self._footprint(name, spec.profiled(profile)) if timings else None
        if footprint is None:
            return None
        return described.unit_of(
            spec,
            profile,
            known,
            footprint=footprint,
            timings=timings,
            loads=self._loads(name, footprint),
            prepare=self._preparing.readings(self._requests == name),
        )

    def _footprint(self, unit: str, spec: ModelSpec) -> Footprint | None:
        """What was told when it was loaded, what its files say, or at least its weights."""
        if (told := self.recording.snapshot["footprints"].get(unit)) is not None:
            return Footprint(**told)
        if (found := self.footprints(spec)) is not None:
            return found
        weights = [c["weights_bytes"] for c in self._changes.get(unit, ()) if c.get("weights_bytes")]
        if not weights:
            return None
        self.assumed.append(f"{unit}: a batch is taken to need no memory beside the weights")
        return Footprint(weights[-1])

    def _timings(self, unit: str, generative: bool) -> dict[str, Timing]:
        batches, timings = self.recording.batches, dict[str, Timing]()
        mine = self._batches == unit
        for device in dict.fromkeys(batches["device"][mine].tolist()):
            rows = np.flatnonzero(mine & (batches["device"] == device))
            curve = ServiceCurve.fit(np.maximum(batches["cost"][rows], 1), self._seconds[rows])
            if curve.readings < FEWEST:
                told = f"{unit}: only {curve.readings} of its batches were seen to run on {device}"
                self.assumed.append(f"{told}; others are extrapolated from these")
            timings[device] = Seen(curve, *(self._pace(unit, rows) if generative else ()))
            timings.setdefault(device.partition(":")[0], timings[device])
        return timings

    def _pace(self, unit: str, rows: NDArray[np.intp]) -> tuple[float, int]:
        """Seconds in which every running sequence gains one token, as far as can be told; and the most
        that one gained in a quantum."""
        seconds = self._seconds[rows]
        running, tokens = (self.recording.batches[name][rows] for name in ("running", "tokens"))
        wrote = (tokens > 0) & (running > 0)
        if wrote.any():
            each = tokens[wrote] / running[wrote]
            return float(np.median(seconds[wrote] / each)), max(1, int(np.ceil(each.max())))
        requests, asked = self.recording.requests, self._requests == unit
        wrote = asked & (requests["output_tokens"] > 0)
        self.assumed.append(f"{unit}: the time of a token is that of whole answers")
        paces: Floats = requests["run_seconds"][wrote] / requests["output_tokens"][wrote]
        return (float(np.median(paces)) if wrote.any() else 0.0), 1 << 62

    def _loads(self, unit: str, footprint: Footprint) -> Loads:
        """Those that were seen; or the last that the server knew; or by size, at the speed of others."""
        loaded = [c for c in self._changes.get(unit, ()) if c["event"] == "loaded"]
        disk = [c["seconds"] for c in loaded if not c.get("from_host")]
        host = [c["seconds"] for c in loaded if c.get("from_host")]
        before = [r for r in self.recording.snapshot.get("loads", ()) if r["unit"] == unit]
        disk = disk or [r["load_seconds"] for r in before if r["load_seconds"]]
        host = host or [r["restore_seconds"] for r in before if r["restore_seconds"]]
        if disk:
            return Loads(tuple(disk), tuple(host))
        speed = f"{self._bandwidth / 1e9:.2f} GB/s is taken"
        whose = "as others had" if self._loaded else "for no model was seen to load"
        self.assumed.append(f"{unit}: nobody saw it load from disk; {speed}, {whose}")
        return Loads((footprint.weights_bytes / self._bandwidth,), tuple(host), seen=False)


def _by_unit(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[base(row["unit"])].append(row)
    return found
