"""Preparers: tokenizers, image processors and header readers, one for each model that was asked for.

They are resources of their own, usable before any weights are on a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio

from engine.adapters.family import Cutting, Family, Preparer
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput, LoadFailed
from engine.loading import believed, explained
from engine.offload import Offload, contained

if TYPE_CHECKING:
    from engine.adapters.preparing.cutting import Cutter

R = TypeVar("R")


@dataclass(slots=True)
class _Making:
    """A preparer that is being made; whoever asks meanwhile waits for it."""

    spec: ModelSpec
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

    def ready(self, key: str, spec: ModelSpec) -> Preparer | None:
        """The preparer, where it was made for this entry."""
        making = self._made.get(key)
        return making.preparer if making is not None and making.spec is spec else None

    async def preparer(self, key: str, spec: ModelSpec) -> Preparer:
        """The preparer, made now if need be. Raises why there is none."""
        return self.ready(key, spec) or await self._preparer(key, spec)

    async def each(self, works: Sequence[Callable[[], R]], *, slow: bool = False) -> list[R | Exception]:
        """All of it where such work is done, one after the other; what each gave, or raised.

        What may be `slow` goes where preparers are made, and takes no thread of what is quick.
        """

        def all_of_it() -> list[R | Exception]:
            return [_tried(work) for work in works]

        return await (self._opening if slow else self._preparing)(all_of_it)

    async def cutter(self, key: str, spec: ModelSpec) -> Cutter:
        """The tokenizer of a model, to be shown. Raises InvalidInput when it has none."""
        preparer = await self._preparer(key, spec)
        if isinstance(preparer, Cutting):
            return preparer.cutter
        raise InvalidInput(f"{spec.id} has no tokenizer that could be shown.")

    async def beside(self, work: Callable[[], R]) -> R:
        """Quick work on a preparer, where such work is done."""
        return await self._preparing(work)

    def cost_unit(self, spec: ModelSpec) -> str:
        """What a cost of 1 is. Quick once a preparer of the model was made."""
        return self._family(spec.family).cost_unit

    async def _preparer(self, key: str, spec: ModelSpec) -> Preparer:
        """Made once however many ask; a failure is told to all who waited, and the next ask tries again.

        Another `spec` is another preparer, be it equal to the one before: its files may not be.
        """
        making = self._made.get(key)
        if making is None or making.spec is not spec:
            making = self._made[key] = _Making(spec)
            try:
                making.preparer = await self._opening(partial(self._make, spec))
            except EngineError as error:
                making.error = error
            except Exception as error:
                text = f"The tokenizer or processor of {spec.id} could not be made: {explained(error)}"
                making.error = LoadFailed(text, error_class=type(error).__name__)
            finally:
                if making.preparer is None and self._made.get(key) is making:
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
        return family.preparer(spec, believed(self._locate(spec)))


def _tried(work: Callable[[], R]) -> R | Exception:
    try:
        return contained(work)()
    except Exception as error:
        return error
