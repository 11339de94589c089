"""Which of a model's labels a caller asked for, and how the caller spells them.

A catalogue entry's `labels` maps what may be asked, in lower case, to the model's own label, or to
several of them separated by `|` (`location: GPE|LOC`). The model's own labels may always be asked for.
Case does not matter, nor whether words are joined by a space, `_` or `-`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.adapters.labelling.open_labels import checked
from engine.errors import InvalidInput, NotFinite
from engine.requests import Classification


@dataclass(frozen=True, slots=True)
class Chosen:
    """The model's labels that are wanted, each with the name that its answers carry."""

    names: Mapping[str, str]

    def name(self, label: str) -> str | None:
        """The caller's spelling of the model's `label`; None when nobody asked for it."""
        return self.names.get(label)

    def classified(self, chances: Mapping[str, float], threshold: float | None) -> tuple[Classification, ...]:
        """What was asked for of `chances` (by the model's labels), most likely first. Raises
        NotFinite when the model gave something that is no number."""
        if not all(map(math.isfinite, chances.values())):
            raise NotFinite
        kept = (
            Classification(name, chances[label])
            for label, name in self.names.items()
            if threshold is None or chances[label] >= threshold
        )
        return tuple(sorted(kept, key=lambda c: -c.score))


class Labels:
    """What one model can be asked for."""

    def __init__(self, model: str, own: Iterable[str], table: Mapping[str, str]) -> None:
        """`own` are the labels that the model itself gives. A table that names others is a bug in the
        catalogue entry: raises ValueError."""
        self._model = model
        self._own = tuple(dict.fromkeys(own))
        self._table: dict[str, tuple[str, ...]] = {_key(label): (label,) for label in self._own}
        for asked, labels in table.items():
            meant = tuple(part.strip() for part in labels.split("|"))
            if strange := [label for label in meant if label not in self._own]:
                raise ValueError(f"{model}: labels: {asked!r} means {strange[0]!r}, which the model lacks")
            self._table[_key(asked)] = meant
        self._askable = tuple(sorted({*table, *self._own}, key=lambda name: (name.casefold(), name)))

    def choose(self, asked: Sequence[str]) -> Chosen:
        """The labels that `asked` means; all of the model's own when nothing is asked.

        Where two asked names mean the same label, answers carry the first. Raises InvalidInput for a
        name that the model cannot give, listing those that it can.
        """
        if not asked:
            return Chosen({label: label for label in self._own})
        names: dict[str, str] = {}
        for name in asked:
            meant = self._table.get(_key(checked(name)))
            if meant is None:
                raise InvalidInput(
                    f"{self._model} does not know the label {name[:100]!r}; it can give: "
                    + ", ".join(self._askable)
                )
            for label in meant:
                names.setdefault(label, name)
        return Chosen(names)


def in_order(id2label: Mapping[Any, str] | None) -> list[str]:
    """A configuration's labels in the order of the model's outputs."""
    return [label for _, label in sorted((int(i), label) for i, label in (id2label or {}).items())]


def _key(name: str) -> str:
    return re.sub(r"[\s_\-]+", " ", name).strip().casefold()
