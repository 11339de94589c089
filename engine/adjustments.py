"""What operators changed of limits, class and share, laid over the entries of the catalogue's files.

An adjustment stays until an operator takes it back, over restarts and over changes of the entry.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from engine import complaints
from engine.catalog import Catalog, ModelSpec
from engine.entry import Limits, Profile
from engine.errors import InvalidInput
from engine.quantities import Real
from engine.wishes import Adjusted

log = logging.getLogger(__name__)

BOUNDS = tuple(Limits.model_fields)
"""Of a model, or of one of its profiles."""


class Adjustment(Limits):
    """What may be adjusted. None: as the entry says."""

    weight: Annotated[Real, Field(ge=0.001, le=1000)] | None = None
    service_class: Literal["interactive", "standard", "background"] | None = None


KEYS = tuple(Adjustment.model_fields)


class Adjustments:
    """The only owner of what is adjusted: of a model `a`, and of a profile's limits `a:profile`."""

    def __init__(self, entries: Catalog, kept: Mapping[str, Mapping[str, Any]]) -> None:
        self.entries = entries
        """As the files have them."""
        self._kept = {target: known for target, values in kept.items() if (known := _known(target, values))}

    def of(self, target: str) -> Mapping[str, Any]:
        """The values in force of a model or of a profile, by key; none where nothing is adjusted."""
        return self._kept.get(target, {})

    def briefly(self, model: str) -> str:
        """For the audit."""
        mine = {t: v for t, v in self._kept.items() if t.partition(":")[0] == model}
        return ", ".join(
            f"{target.partition(':')[2]}{':' if ':' in target else ''}{key}={value}"
            for target, values in sorted(mine.items())
            for key, value in values.items()
        )

    def over(self, entries: Catalog) -> Catalog:
        """The entries as they are served. What is adjusted of models that are gone waits for them."""
        models = {spec.id: self._over(spec, self._kept) for spec in entries}
        return replace(entries, models=models)

    def wished(self, target: str, changes: Mapping[str, Any]) -> Adjusted:
        """What is adjusted of the target with these changes too; None takes one back. Raises InvalidInput."""
        if not changes:
            raise InvalidInput(f"Say what to adjust: one or more of {', '.join(KEYS)}.")
        return Adjusted(target, check(target, {**self.of(target), **changes}))

    def entry(self, wish: Adjusted) -> ModelSpec:
        """How the model would be served under the wish."""
        return self._over(self.entries.models[_model(wish.target)], {**self._kept, wish.target: wish.values})

    def keep(self, wish: Adjusted) -> None:
        self._kept.pop(wish.target, None)
        if wish.values:
            self._kept[wish.target] = dict(wish.values)

    def _over(self, spec: ModelSpec, kept: Mapping[str, Mapping[str, Any]]) -> ModelSpec:
        own = {key: value for key, value in kept.get(spec.id, {}).items() if key not in BOUNDS}
        limits = _bounded(spec.limits, kept.get(spec.id, {}))
        profiles = {
            name: _profile(profile, limits, kept.get(f"{spec.id}:{name}", {}))
            for name, profile in spec.profiles.items()
        }
        update = {**own, "limits": limits, "profiles": profiles}
        changed = {key: value for key, value in update.items() if getattr(spec, key) != value}
        return spec.model_copy(update=changed) if changed else spec


def check(target: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are one, each as it is kept. Raises InvalidInput with every complaint."""
    try:
        checked = Adjustment.model_validate(dict(values)).model_dump(exclude_none=True)
    except ValidationError as error:
        said = [
            f"{'.'.join(map(str, where))}: {what}" for where, what in complaints.mistakes(error, Adjustment)
        ]
        raise InvalidInput("; ".join(said)) from None
    if ":" in target and (shared := [key for key in checked if key not in BOUNDS]):
        raise InvalidInput(f"{' and '.join(shared)} is of the whole model; adjust {_model(target)}.")
    return checked


def _model(target: str) -> str:
    return target.partition(":")[0]


def _known(target: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What was kept by another version of the server may be none any more."""
    try:
        return check(target, values)
    except InvalidInput as error:
        log.error("what was adjusted of %s is left out: %s", target, error)
        return {}


def _bounded(limits: Limits, values: Mapping[str, Any]) -> Limits:
    bounds = {key: value for key, value in values.items() if key in BOUNDS}
    return limits.model_copy(update=bounds) if bounds else limits


def _profile(profile: Profile, limits: Limits, values: Mapping[str, Any]) -> Profile:
    """Its own limits take the place of the model's, so one that has none begins with those."""
    return (
        profile.model_copy(update={"limits": _bounded(profile.limits or limits, values)})
        if values
        else profile
    )
