"""What models would hold if each had a server of its own, as the engine reckons it before it loads them."""

from __future__ import annotations

from collections.abc import Iterable

from engine.adapters.family import family
from engine.catalog import Catalog
from engine.memory.holdings import Holdings
from engine.sources.locate import Sources
from engine.units import Units


def apart(names: Iterable[str], known: Catalog, sources: Sources) -> int:
    """Bytes of weights and of the least working memory. Imports model libraries: call it in a thread."""
    held = Holdings(Units(known).facts, {}, {})
    total = 0
    for name in names:
        spec, profile = known.resolve(name)
        unit = spec.unit(profile)
        held.footprints[unit] = family(spec.family).footprint(spec, sources.locate(spec))
        total += held.footprints[unit].weights_bytes + held.floor(unit, "cpu")
    return total
