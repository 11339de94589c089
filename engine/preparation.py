"""Preparers: tokenizers, image processors and header readers, one for each model that was asked for.

They are resources of their own, usable before any weights are on a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio

from engine.adapters.family import Family, Prepared, Preparer
from engine.catalog import ModelSpec
from engine.errors import EngineError, LoadFailed
from engine.offload import Offload
from engine.requests import Item, Options, Task


@dataclass(slots=True)
class _Making:
    """A preparer that is being made; whoever asks meanwhile waits for it."""

    done: anyio.Event = field(default_factory=anyio.Event)
    preparer: Preparer | None = None
    error: EngineError | None = None


class Preparation:
    def __init__(
        self,
        locate: Callable[[ModelSpec], Path],
        family: Callable[[str], Family],
        opening: Offload,
        preparing: Offload,
    ) -> None:
        self._locate = locate
        self._family = family
        self._opening = opening  # slow and rare: a conversion may take a minute
        self._preparing = preparing  # quick and often
        self._made: dict[str, _Making] = {}

    async def prepare(
        self, key: str, spec: ModelSpec, task: Task, items: Sequence[Item], options: Options
    ) -> list[Prepared | EngineError]:
        """One entry per item. Raises what `Preparer.prepare` raises, or why there is no preparer."""
        preparer = await self._preparer(key, spec)
        return await self._preparing(partial(preparer.prepare, task, items, options))

    async def _preparer(self, key: str, spec: ModelSpec) -> Preparer:
        """Made once however many ask; a failure is told to all who waited, and the next ask tries again."""
        making = self._made.get(key)
        if making is None:
            making = self._made[key] = _Making()
            try:
                making.preparer = await self._opening(partial(self._make, spec))
            except EngineError as error:
                making.error = error
            except Exception as error:
                text = f"The tokenizer or processor of {spec.id} could not be made: {error}"
                making.error = LoadFailed(text, error_class=type(error).__name__)
            finally:
                if making.preparer is None:
                    del self._made[key]
                making.done.set()
        await making.done.wait()
        if making.error is not None:
            raise making.error
        if making.preparer is None:  # whoever was making it hung up; the next one makes it
            return await self._preparer(key, spec)
        return making.preparer

    def _make(self, spec: ModelSpec) -> Preparer:
        family = self._family(spec.family)
        if beyond := [task for task in spec.tasks if task not in family.tasks]:
            raise LoadFailed(
                f"The catalogue says that {spec.id} can {', '.join(beyond)}; its family {spec.family} "
                f"can only {', '.join(sorted(family.tasks))}",
                error_class="CatalogError",
                permanent=True,
            )
        return family.preparer(spec, self._locate(spec))
