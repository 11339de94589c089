"""What families that stand around another have in common: they do its tasks and count as it does."""

from __future__ import annotations

from engine.adapters.family import Family
from engine.requests import Task


class Around:
    """Passes on what is the inner family's own."""

    def __init__(self, family: Family) -> None:
        self._family = family

    @property
    def cost_unit(self) -> str:
        return self._family.cost_unit

    @property
    def tasks(self) -> frozenset[Task]:
        return self._family.tasks
