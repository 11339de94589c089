"""What differs between two catalogues, and which of it needs other weights. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.catalog import Catalog, ModelSpec
from engine.requests import Task
from engine.units import units_of

LOADED_FROM = frozenset(
    {
        *("family", "sources", "dtype", "devices", "trust_remote_code", "options", "backend"),
        *("tasks", "outputs", "dims", "pooling", "max_tokens"),
        "loras",
    }
)
"""Fields that a family looks at when it measures or loads a model. What differs in any other is known to
the scheduler and to preparers only, and takes effect at once."""


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """Ids of models, by what is to be done about each."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    revised: tuple[str, ...]
    """They differ, but not in what is loaded."""
    replaced: tuple[str, ...]
    """What is loaded for them differs."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.revised or self.replaced)


def compare(old: Catalog, new: Catalog) -> CatalogChange:
    differing = [spec.id for spec in new if spec.id in old.models and spec != old.models[spec.id]]
    replaced = [name for name in differing if _loads_otherwise(old.models[name], new.models[name])]
    return CatalogChange(
        added=tuple(name for name in new.models if name not in old.models),
        removed=tuple(name for name in old.models if name not in new.models),
        revised=tuple(name for name in differing if name not in replaced),
        replaced=tuple(replaced),
    )


def meanwhile(old: Catalog, new: Catalog, waiting: Iterable[str]) -> Catalog:
    """`new`, but the entries in `waiting` are still the old ones, which serve until theirs are loaded."""
    kept = {
        name: old.models[name].model_copy(update={"degrade": new.models[name].degrade}) for name in waiting
    }
    return replace(new, models={**new.models, **kept})


def with_entry(catalog: Catalog, spec: ModelSpec) -> Catalog:
    return replace(catalog, models={**catalog.models, spec.id: spec})


def _loads_otherwise(old: ModelSpec, new: ModelSpec) -> bool:
    """Whether a unit that both make is loaded from something else."""
    mine, theirs = units_of(old), units_of(new)
    return any(
        _loaded_from(old.profiled(mine[unit])) != _loaded_from(new.profiled(theirs[unit]))
        for unit in mine.keys() & theirs.keys()
    )


def _loaded_from(spec: ModelSpec) -> dict[str, object]:
    """A model that generates sets memory aside by its limits."""
    limits = {"limits"} if Task.GENERATE in spec.tasks else set()
    return spec.model_dump(include={*LOADED_FROM, *limits})
