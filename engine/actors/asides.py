"""What is asked of a model's preparer alone: what a request would cost, how texts are cut into tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, assert_never

import anyio

from engine.actors.actor import Address, Reply
from engine.actors.messages import Estimate, Foresee, Spell, Submit, Tokenize
from engine.adapters.family import Prepared
from engine.errors import EngineError
from engine.estimates import Costed
from engine.going import Going, held_bytes
from engine.preparation import Preparation
from engine.requests import Task, Usage
from engine.scheduling.rules import SchedulingRules
from engine.units import Units

if TYPE_CHECKING:
    from engine.adapters.preparing.cutting import Cutter

Aside = Estimate | Tokenize | Spell


def weight(aside: Aside) -> tuple[int, int]:
    """Bytes that it holds, and how many items it has: it is bounded as a request is."""
    match aside:
        case Estimate():
            return held_bytes(aside.request), len(aside.request.items)
        case Tokenize():
            return 4 * sum(map(len, aside.texts)), len(aside.texts)
        case Spell():
            return 36 * sum(map(len, aside.ids)), len(aside.ids)
        case _:
            assert_never(aside)


class Asides:
    """Prepares them as requests are, for the router: `going` and `bounded` are its own."""

    def __init__(
        self,
        units: Units,
        rules: SchedulingRules,
        preparation: Preparation,
        batcher: Address[Foresee],
        going: Callable[[Submit, float], Going],
        bounded: Callable[[Going], Awaitable[Sequence[Prepared | EngineError]]],
    ) -> None:
        self._units = units
        self._rules = rules
        self._preparation = preparation
        self._batcher = batcher
        self._going = going
        self._bounded = bounded

    async def answer(self, aside: Aside) -> None:
        """Raises EngineError for what a request of the same kind would be refused for."""
        match aside:
            case Estimate():
                await self._estimate(aside)
            case Tokenize():
                cutter = await self._cutter(aside.model)
                work = partial(cutter.cut, aside.texts, aside.special)
                aside.reply.resolve(await self._preparation.beside(work))
            case Spell():
                cutter = await self._cutter(aside.model)
                spell = partial(cutter.spell, aside.ids, aside.special)
                aside.reply.resolve(await self._preparation.beside(spell))
            case _:
                assert_never(aside)

    async def _estimate(self, aside: Estimate) -> None:
        request = aside.request
        going = self._going(Submit(Reply(), request), anyio.current_time())  # nobody waits for an answer
        prepared = await self._bounded(going)
        wrong = [ready.at(index) for index, ready in enumerate(prepared) if isinstance(ready, EngineError)]
        if wrong and request.task is not Task.EXTRACT:
            raise wrong[0]
        good = [ready for ready in prepared if isinstance(ready, Prepared)]
        costed = Costed(
            model=going.spec.id,
            cost_unit=self._preparation.cost_unit(going.spec),
            costs=tuple(max(1, ready.cost) if isinstance(ready, Prepared) else 0 for ready in prepared),
            usage=sum((ready.usage for ready in good), Usage()),
            degrade=going.spec.degrade,
        )
        own = self._units.facts(going.unit).targets
        jobs = going.jobs("estimate", prepared, own, self._rules.targets)
        self._batcher.tell(Foresee(aside.reply, going.unit, tuple(job for job, _ in jobs), costed))

    async def _cutter(self, model: str) -> Cutter:
        spec, profile = self._units.catalog.resolve(model)
        key = f"{spec.id}:{profile}" if profile else spec.id
        return await self._preparation.cutter(key, self._units.chosen(spec, profile))
