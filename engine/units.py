"""What the scheduler and the memory manager know of a unit: a catalogue entry boiled down to numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from engine.catalog import Catalog, ModelSpec
from engine.entry import WRITERS
from engine.errors import UnknownModel
from engine.requests import ServiceClass, Task


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """A unit is what is loaded as one: a model and whatever changes its weights."""

    unit: str
    model: str
    device_kinds: tuple[str, ...]
    weight: float = 1.0
    generative: bool = False
    max_batch_cost: int = 1 << 62
    max_slots: int = 1 << 62
    max_running: int = 16
    targets: Mapping[ServiceClass, float] = field(default_factory=dict)
    idle_unload: float | None = None
    """Seconds without use after which it leaves; None: as the settings say."""
    adapts: str | None = None
    """Of an adapter, the unit that it is laid over: it is nowhere without that one."""


def facts(spec: ModelSpec, profile: str | None, max_batch_cost: int | None) -> UnitFacts:
    """`max_batch_cost` is the server's own bound, where the operator set one."""
    chosen = spec.profiled(profile)
    bounds = [b for b in (chosen.limits.max_batch_cost, max_batch_cost) if b]
    generative = Task.GENERATE in spec.tasks or spec.family in WRITERS
    return UnitFacts(
        unit=spec.unit(profile),
        model=spec.id,
        device_kinds=spec.devices,
        weight=spec.weight,
        generative=generative,
        max_batch_cost=min(bounds, default=1 << 62),
        max_slots=1 if generative else chosen.limits.max_slots or 1 << 62,
        max_running=chosen.limits.max_running or 16,
        targets={ServiceClass[name.upper()]: seconds for name, seconds in spec.targets.items()},
        idle_unload=spec.idle_unload,
    )


def on_devices(catalog: Catalog, kinds: Collection[str]) -> Catalog:
    """The catalogue where only devices of these kinds are.

    A CPU holds float32 whatever an entry says, so there a profile's `dtype` makes no second resident.
    """
    models = {
        spec.id: _in_float32(spec) if {*spec.devices} & {*kinds} == {"cpu"} else spec for spec in catalog
    }
    return replace(catalog, models=models)


def _in_float32(spec: ModelSpec) -> ModelSpec:
    profiles = {name: profile.model_copy(update={"dtype": None}) for name, profile in spec.profiles.items()}
    return spec.model_copy(update={"profiles": profiles})


def units_of(spec: ModelSpec) -> dict[str, str | None]:
    """The units that an entry makes, each with the first profile that it is loaded for."""
    made: dict[str, str | None] = {}
    for profile in (None, *spec.profiles):
        made.setdefault(spec.unit(profile), profile)
    return made


def base(unit: str) -> str:
    """The name that the catalogue gives a unit, whichever version of it this is: `a` of `a#2`, and `a:legal`
    of its adapter `a#2:legal`."""
    of, adapter = parted(unit)
    name = of.partition("#")[0]
    return adapted(name, adapter) if adapter else name


def adapted(unit: str, adapter: str) -> str:
    """What the unit's adapter is called where it is loaded and leaves, as a unit of its own."""
    return f"{unit}:{adapter}"


def parted(unit: str) -> tuple[str, str]:
    """The unit that an adapter is laid over, and the adapter's name; the unit and "" where it is none."""
    of, _, adapter = unit.partition(":")
    return of, adapter


class Units:
    """The one owner of what is served now: the catalogue, and which version of each of its units.

    A unit whose weights change is a new unit, `a#2`, until the server starts again. Whoever asks reads
    here, each time; `Changeover` alone changes it.
    """

    def __init__(self, catalog: Catalog, max_batch_cost: int | None = None) -> None:
        self._max_batch_cost = max_batch_cost
        self._serving: dict[str, str] = {}
        self._versions: dict[str, int] = {}
        self._specs: dict[str, ModelSpec] = {}
        self._facts: dict[str, UnitFacts] = {}
        self._chosen: dict[tuple[str, str | None], ModelSpec] = {}
        self.catalog = catalog
        self.serve(catalog, {})

    def spec(self, unit: str) -> ModelSpec:
        """What the unit is loaded with."""
        return self._specs[unit]

    def facts(self, unit: str) -> UnitFacts:
        return self._facts[unit]

    def serving(self, unit: str) -> str:
        """The version that takes new requests for what the catalogue calls `unit`. Raises UnknownModel."""
        of, adapter = parted(unit)
        if not self.serves(unit):
            raise UnknownModel(f"The catalogue makes no {unit} any more.")
        return adapted(self._serving[of], adapter) if adapter else self._serving[of]

    def serves(self, unit: str) -> bool:
        """Whether the catalogue makes such a unit now."""
        of, adapter = parted(unit)
        serving = self._serving.get(of)
        return serving is not None and (not adapter or adapter in self._specs[serving].loras)

    def adapters(self, unit: str) -> list[str]:
        """The units that the adapters of `unit` are."""
        return [adapted(unit, name) for name in self._specs[unit].loras] if unit in self._specs else []

    def unit(self, spec: ModelSpec, profile: str | None) -> str:
        return self._serving[spec.unit(profile)]

    def chosen(self, spec: ModelSpec, profile: str | None) -> ModelSpec:
        """The entry as the profile has it: one object until the entry changes."""
        return self._chosen[spec.id, profile]

    def versions(self, model: str) -> Iterator[str]:
        """Every unit there is of a model, those that are leaving and those that come among them."""
        return (unit for unit in self._specs if self._facts[unit].model == model)

    def all(self) -> Iterator[tuple[str, str, bool]]:
        """Every unit since the start, its model, and whether there is still such a unit."""
        return ((unit, facts.model, unit in self._specs) for unit, facts in self._facts.items())

    def begin(self, spec: ModelSpec, profile: str | None) -> str:
        """A new version of a unit, which serves nobody yet. `drop` it if it never comes to."""
        name = spec.unit(profile)
        number = self._versions[name] = self._versions.get(name, 1) + 1
        unit = f"{name}#{number}"
        self._know(unit, spec, profile)
        return unit

    def serve(self, catalog: Catalog, versions: Mapping[str, str]) -> None:
        """From now on requests are served as `catalog` says, and by these versions where they are new.

        What it no longer makes stays known until it is dropped.
        """
        serving, chosen = {}, {}
        for spec in catalog:
            known = self.catalog.models.get(spec.id) is spec and not versions.keys() & units_of(spec).keys()
            for profile in (None, *spec.profiles):
                kept = self._chosen.get((spec.id, profile)) if known else None
                chosen[spec.id, profile] = kept or spec.profiled(profile).model_copy()
            for name, profile in units_of(spec).items():
                unit = serving[name] = versions.get(name) or self._serving.get(name) or self._first(name)
                self._know(unit, spec, profile)
        self.catalog, self._serving, self._chosen = catalog, serving, chosen

    def drop(self, unit: str) -> None:
        """It has left, and will not come again. Its few numbers stay: books that it is in are still read."""
        if unit not in self._serving.values():
            for each in (*self.adapters(unit), unit):
                self._specs.pop(each, None)

    def _first(self, name: str) -> str:
        """The plain name, unless it was there before and what was known of it may be of other weights."""
        number = self._versions[name] = self._versions.get(name, 0) + 1
        return name if number == 1 else f"{name}#{number}"

    def _know(self, unit: str, spec: ModelSpec, profile: str | None) -> None:
        chosen = self._specs[unit] = spec.profiled(profile)
        known = self._facts[unit] = replace(facts(spec, profile, self._max_batch_cost), unit=unit)
        for each in self.adapters(unit):
            self._specs[each] = chosen
            self._facts[each] = UnitFacts(
                each, spec.id, spec.devices, idle_unload=known.idle_unload, adapts=unit
            )
