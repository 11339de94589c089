"""What became of requests, as columns: of a recording, of a replay, or of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from replay.trace import Floats

GOOD = ("ok", "degraded")


@dataclass(frozen=True, slots=True)
class Answers:
    """Every column is (n,), in order of arrival; times in seconds, `arrived` from the first arrival."""

    models: tuple[str, ...]
    model: NDArray[np.int32]
    """Index into `models`: who was asked."""
    service_class: NDArray[np.int8]
    arrived: Floats
    latency: Floats
    """Until the answer; inf for what was refused or never answered."""
    prepare: Floats
    queue: Floats
    load: Floats
    run: Floats
    """Where its time went, as far as the server says; nan where it does not."""
    outcomes: tuple[str, ...]
    outcome: NDArray[np.int16]
    """Index into `outcomes`: ok, degraded, or an error's code."""
    cold: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        *,
        models: Sequence[str],
        service_class: NDArray[np.int8],
        arrived: Floats,
        latency: Floats,
        prepare: Floats,
        queue: Floats,
        load: Floats,
        run: Floats,
        outcomes: Sequence[str],
        cold: NDArray[np.bool_],
    ) -> Self:
        """`models` and `outcomes` name each row's."""
        names, model = _coded(models)
        words, outcome = _coded(outcomes)
        return cls(
            models=names,
            model=model,
            service_class=service_class,
            arrived=arrived,
            latency=latency,
            prepare=prepare,
            queue=queue,
            load=load,
            run=run,
            outcomes=words,
            outcome=outcome.astype(np.int16),
            cold=cold,
        )

    def __len__(self) -> int:
        return len(self.arrived)

    @property
    def span(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.arrived[-1]) if len(self) else 0.0

    def take(self, chosen: NDArray[np.bool_]) -> Answers:
        """These rows only, from the first of them on."""
        arrived = self.arrived[chosen]
        columns = ("model", "service_class", "latency", "prepare", "queue", "load", "run", "outcome", "cold")
        kept = {name: getattr(self, name)[chosen] for name in columns}
        return replace(self, arrived=arrived - arrived[0] if len(arrived) else arrived, **kept)

    def renamed(self, names: Mapping[str, str]) -> Answers:
        """The same for other models; several may become one."""
        told = [names.get(model, model) for model in self.models]
        models = tuple(dict.fromkeys(told))
        codes = np.array([models.index(model) for model in told], dtype=np.int32)
        return replace(self, models=models, model=codes[self.model] if len(codes) else self.model)

    @property
    def answered(self) -> NDArray[np.bool_]:
        return np.isfinite(self.latency)

    def ended(self, *outcomes: str) -> NDArray[np.bool_]:
        """Rows with one of these outcomes."""
        return np.isin(self.outcome, [code for code, word in enumerate(self.outcomes) if word in outcomes])

    def asked(self, model: str, service_class: int | None = None) -> NDArray[np.bool_]:
        """Rows for this model, of one class or of all."""
        mine = self.model == (self.models.index(model) if model in self.models else -1)
        return np.asarray(mine if service_class is None else mine & (self.service_class == service_class))

    def told(self) -> list[str]:
        """Each row's outcome as a word."""
        return [self.outcomes[code] for code in self.outcome.tolist()]


def _coded(names: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    known = tuple(dict.fromkeys(names))
    number = {name: index for index, name in enumerate(known)}
    return known, np.fromiter((number[name] for name in names), dtype=np.int32, count=len(names))
