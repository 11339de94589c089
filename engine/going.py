"""A request on its way in: where it goes, what it holds, and the jobs that its items become. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from engine.actors.messages import Submit
from engine.adapters.family import Prepared
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import GenerateOptions, Request, ServiceClass
from engine.scheduling.lanes import Job
from engine.units import adapted


class Going(msgspec.Struct, frozen=True):
    """Where a request goes, decided when it came: a change of the catalogue does not move it."""

    submit: Submit
    spec: ModelSpec
    chosen: ModelSpec
    """As the profile has it."""
    profile: str | None
    unit: str
    size: int
    received: float

    @property
    def key(self) -> str:
        """Of its preparer."""
        return f"{self.spec.id}:{self.profile}" if self.profile else self.spec.id

    @property
    def service_class(self) -> ServiceClass:
        asked = self.submit.request.service_class
        return self.spec.default_class if asked is None else asked

    @property
    def slow(self) -> bool:
        """Whether its preparer waits for a child process, which opens documents."""
        return any(item.document is not None for item in self.submit.request.items)

    def jobs(
        self,
        number: str,
        prepared: Sequence[Prepared | EngineError],
        own_targets: Mapping[ServiceClass, float],
        targets: Mapping[ServiceClass, float],
    ) -> list[tuple[Job, Prepared]]:
        """One for each item that could be prepared. `targets` are the settings', where the entry has none."""
        chosen = self.service_class
        target = own_targets.get(chosen, targets[chosen])
        return [
            (self._job(number, index, ready, chosen, target), ready)
            for index, ready in enumerate(prepared)
            if not isinstance(ready, EngineError)
        ]

    def _job(
        self, number: str, index: int, ready: Prepared, service_class: ServiceClass, target: float
    ) -> Job:
        request, limits = self.submit.request, self.chosen.limits
        return Job(
            id=f"{number}/{index}",
            request=number,
            unit=self.unit,
            cost=max(1, ready.cost),
            service_class=service_class,
            arrived=self.received,
            due=min(request.deadline, self.received + target),
            deadline=request.deadline,
            kv_tokens=ready.kv_tokens,
            max_batch_cost=limits.max_batch_cost or 1 << 62,
            max_batch_jobs=limits.max_batch_jobs or 1 << 62,
            principal=request.principal,
            adapters=tuple([adapted(self.unit, lora) for lora in ready.loras]),
        )


def check(request: Request, spec: ModelSpec) -> None:
    """Whether the model can do this at all. Raises InvalidInput naming what it can do."""
    if request.task not in spec.tasks:
        raise InvalidInput(f"{spec.id} cannot {request.task}; it can: {', '.join(spec.tasks)}.")
    if (lora := request.options.lora) is not None and lora not in spec.loras:
        there = ", ".join(sorted(spec.loras)) or "none"
        raise InvalidInput(f"{spec.id} has no adapter {lora[:100]!r}; it has: {there}.")
    if not request.items:
        raise InvalidInput("items is empty; send at least one.")


def held_bytes(request: Request) -> int:
    """Bytes of what the client sent, text at four a character as Python may hold it."""
    total = request.options.held_bytes if isinstance(request.options, GenerateOptions) else 0
    for item in request.items:
        total += 4 * len(item.text or "") + 36 * len(item.tokens or ()) + 200
        for media in (*item.images, item.audio, item.video, item.document):
            if media is not None:
                total += len(media.data)
    return total
