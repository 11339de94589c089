"""What every pipeline of the demo does at every stage: ask a model, look at memory, tell whoever watches."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from web.demo.client import Memory, Server, Spent


@dataclass(frozen=True, slots=True)
class Step:
    """One stage, after its answer."""

    stage: str
    model: str
    spent: Spent
    memory: Memory
    evicted: tuple[str, ...]
    """Models that were evicted since the stage before."""

    @property
    def weights_bytes(self) -> int:
        return self.memory.weights.get(self.model, 0)

    @property
    def floor_bytes(self) -> int:
        return self.memory.floors.get(self.model, 0)


class Watcher(Protocol):
    """Whoever looks on. A person at a terminal, or nobody."""

    def began(self, stage: str, model: str) -> None: ...

    def ended(self, step: Step, found: str) -> None:
        """`found`: what came of it, in a line."""
        ...

    def wrote(self, text: str) -> None:
        """More of the text that is being written; before `ended`."""
        ...


class Pipeline:
    """One run through the stages, one after another."""

    def __init__(self, name: str, server: Server, watcher: Watcher) -> None:
        self.name = name
        self.steps: list[Step] = []
        self._server = server
        self._watcher = watcher
        self._before: Memory | None = None

    async def ask(self, stage: str, task: str, model: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer. Say what was found in it by `found`, before the next stage."""
        await self._begin(stage, model)
        answer, spent = await self._server.post(task, model, body, self.name)
        await self._end(stage, model, spent)
        return answer

    async def write(self, stage: str, model: str, body: Mapping[str, Any]) -> str:
        """A text, shown as it is written."""
        await self._begin(stage, model)
        text = ""
        async with aclosing(self._server.stream(model, body, self.name)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Spent):
                    await self._end(stage, model, piece)
                else:
                    text += piece
                    self._watcher.wrote(piece)
        return text.strip()

    def found(self, said: str) -> None:
        """What came of the stage that has just ended."""
        self._watcher.ended(self.steps[-1], said)

    async def _begin(self, stage: str, model: str) -> None:
        self._watcher.began(stage, model)
        if self._before is None:
            self._before = await self._server.memory()

    async def _end(self, stage: str, model: str, spent: Spent) -> None:
        assert self._before is not None
        before, self._before = self._before, await self._server.memory()
        now = self._before.evictions
        evicted = tuple(name for name in now for _ in range(now[name] - before.evictions.get(name, 0)))
        self.steps.append(Step(stage, model, spent, self._before, evicted))
