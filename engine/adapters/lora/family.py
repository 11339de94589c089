"""Families whose models have adapters: any of them, wherever a catalogue entry names some."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from engine.adapters.around import Around
from engine.adapters.family import Family, Footprint, GenerativeModel, Model, Preparer
from engine.catalog import ModelSpec


class WithAdapters(Around):
    """A family, with the adapters that entries name beside their bases."""

    def __init__(self, family: Family, locate: Callable[[ModelSpec], Path]) -> None:
        super().__init__(family)
        self._locate = locate

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        taken = self._family.footprint(spec, path)
        if not spec.loras:
            return taken
        from engine.adapters.lora import loading  # imports torch, as not every family does

        return loading.footprint(taken, spec, path, self._locate)

    def adapter_footprint(self, spec: ModelSpec, name: str, path: Path) -> Footprint:
        from engine.adapters.lora import loading

        return loading.adapter_footprint(spec, name, path, self._locate)

    def preparer(self, spec: ModelSpec, path: Path) -> Preparer:
        made = self._family.preparer(spec, path)
        if not spec.loras:
            return made
        from engine.adapters.lora import loading

        return loading.preparer(made, spec, path, self._locate)

    def load(self, spec: ModelSpec, path: Path, device: str) -> Model | GenerativeModel:
        model = self._family.load(spec, path, device)
        if not spec.loras:
            return model
        from engine.adapters.lora import loading

        return loading.adapted(model, spec, path, device, self._locate)


def with_adapters(family: Family, locate: Callable[[ModelSpec], Path]) -> Family:
    return cast(Family, WithAdapters(family, locate))
