"""What the scheduler and the memory manager know of a unit: a catalogue entry boiled down to numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from engine.catalog import Catalog, ModelSpec
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


def facts(spec: ModelSpec, profile: str | None, max_batch_cost: int | None) -> UnitFacts:
    """`max_batch_cost` is the server's own bound, where the operator set one."""
    chosen = spec.profiled(profile)
    bounds = [b for b in (chosen.limits.max_batch_cost, max_batch_cost) if b]
    generative = Task.GENERATE in spec.tasks
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
    )


def on_devices(catalog: Catalog, kinds: Collection[str]) -> Catalog:
    """The catalogue where only devices of these kinds are.

    A CPU holds float32 whatever an entry says, so there a profile's `dtype` makes no second resident.
    """
    models = {
        spec.id: _in_float32(spec) if {*spec.devices} & {*kinds} == {"cpu"} else spec for spec in catalog
    }
    return Catalog(models, catalog.aliases)


def _in_float32(spec: ModelSpec) -> ModelSpec:
    profiles = {name: profile.model_copy(update={"dtype": None}) for name, profile in spec.profiles.items()}
    return spec.model_copy(update={"profiles": profiles})


class Units:
    """Every unit that a catalogue can make, by name."""

    def __init__(self, catalog: Catalog, max_batch_cost: int | None = None) -> None:
        self._specs: dict[str, ModelSpec] = {}
        self._facts: dict[str, UnitFacts] = {}
        for spec in catalog:
            for profile in (None, *spec.profiles):
                unit = spec.unit(profile)
                self._specs.setdefault(unit, spec.profiled(profile))
                self._facts.setdefault(unit, facts(spec, profile, max_batch_cost))

    def spec(self, unit: str) -> ModelSpec:
        return self._specs[unit]

    def facts(self, unit: str) -> UnitFacts:
        return self._facts[unit]
