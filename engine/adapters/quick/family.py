"""Families whose encoders run in a quicker way on a card, where a catalogue entry's backend names one."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from engine.adapters.around import Around
from engine.adapters.family import Family, Footprint, GenerativeModel, Model, Preparer
from engine.catalog import ModelSpec
from engine.entry import QUICK


class Quick(Around):
    """A family, to which such an entry is one of backend torch."""

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        if spec.backend not in QUICK:
            return self._family.footprint(spec, path)
        from engine.adapters.quick import loading  # imports torch, as not every family does

        return loading.footprint(self._family.footprint(_plain(spec), path), spec, path)

    def preparer(self, spec: ModelSpec, path: Path) -> Preparer:
        return self._family.preparer(_plain(spec), path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> Model | GenerativeModel:
        if spec.backend not in QUICK:
            return self._family.load(spec, path, device)
        from engine.adapters.quick import loading

        return loading.quickened(self._family.load(_plain(spec), path, device), spec, device)


def _plain(spec: ModelSpec) -> ModelSpec:
    return spec.model_copy(update={"backend": "torch"}) if spec.backend in QUICK else spec


def quick(family: Family) -> Family:
    return cast(Family, Quick(family))
