"""An engine in this process as the target of a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.catalog import ModelSpec
from engine.engine import Engine
from engine.errors import EngineError
from engine.requests import Request, Task
from replay.payloads import Call
from replay.replaying.target import Look, Outcome
from replay.trace import BadTrace


class Within:
    name = "an engine in this process"
    shares_process = True

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def specs(self, models: Sequence[str]) -> list[ModelSpec]:
        try:
            return [self._engine.catalog.resolve(model)[0] for model in models]
        except EngineError as error:
            raise BadTrace(f"{error} Say which model is meant: --as NAME=MODEL.") from None

    async def estimate(self, request: Request) -> tuple[int, ...]:
        return (await self._engine.estimate(request)).costed.costs

    async def send(self, call: Call) -> Outcome:
        request = replace(call.request, deadline=self._engine.now() + call.deadline)
        try:
            if request.task is Task.GENERATE:
                async for delta in self._engine.stream(request):
                    answer = delta.done
                assert answer is not None
            else:
                answer = await self._engine.submit(request)
        except EngineError as error:
            return Outcome(error.code)
        spent = answer.timing
        return Outcome(
            code="degraded" if answer.degraded_from else "ok",
            prepare=spent.prepare,
            queue=spent.queue,
            load=spent.load,
            run=spent.run,
            cold=answer.cold,
            output_tokens=answer.usage.output_tokens,
        )

    async def look(self) -> Look:
        view = self._engine.view()
        there = [r for model in view.models for r in model.residencies]
        devices = [
            {
                "name": device.name,
                "used_bytes": device.used_bytes,
                "budget_bytes": device.budget_bytes,
                "slots": device.slots,
                "busy_slots": device.busy_slots,
                "busy_seconds": device.busy_seconds,
                "lines": dict(device.lines),
                "units": {r.unit: r.weights_bytes for r in there if r.device == device.name},
            }
            for device in view.devices
        ]
        return Look(devices, {model.id: model.loads for model in view.models})
