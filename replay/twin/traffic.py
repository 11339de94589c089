"""What the twin is sent: when, for which unit, and the costs of the jobs in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from replay.scaling import Method, scaled
from replay.trace import UNSAID, BadTrace, Kind, Trace, merged
from replay.twin.server import Server


@dataclass(frozen=True, slots=True)
class Shape:
    """What one request asks for. Shapes are shared by all requests that ask the same."""

    unit: str
    costs: tuple[int, ...]
    """One a job."""
    answer_tokens: int = 0
    """That each job's answer has, where it is one that is written."""
    most_tokens: int = 0
    """That each job's answer could have had: memory is kept for so many."""
    deadline: float = inf
    """Seconds from its arrival."""
    principal: str = ""


@dataclass(frozen=True, slots=True)
class Traffic:
    """A trace whose `input_size` is an index into `shapes`: so every way of cutting and scaling a trace
    serves for this too."""

    trace: Trace
    shapes: tuple[Shape, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, trace: Trace, server: Server) -> Traffic:
        """Requests as they were recorded; where only sizes are known, each has one job whose cost is its
        input size, in the class of its model. The trace's models are units here.

        Raises BadTrace for a model that the server lacks.
        """
        missing = [model for model in trace.models if model not in server.units]
        if missing:
            known = ", ".join(sorted(server.units)[:8])
            raise BadTrace(
                f"The server has no {', '.join(missing)}; say which model is meant, as --as "
                f"{missing[0]}=MODEL. It has {known}."
            )
        numbers: dict[Shape, int] = {}
        shaped = _Shaping(server, trace.kinds)
        columns = (trace.model, trace.kind, trace.input_size, trace.output_size)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        found = np.array(
            [numbers.setdefault(shaped(trace.models[m], *row), len(numbers)) for m, *row in rows],
            dtype=np.int64,
        )
        default = [server.units[model].default_class for model in trace.models]
        unsaid = np.array(default, dtype=np.int8)[trace.model]
        classes = np.where(trace.kind == UNSAID, unsaid, trace.service_class)
        own = replace(trace, input_size=found, service_class=classes)
        return cls(own, tuple(numbers), (*trace.notes, *shaped.notes))

    def __len__(self) -> int:
        return len(self.trace)

    def scaled(self, factor: float, method: Method, seed: int) -> Traffic:
        return self if factor == 1 else replace(self, trace=scaled(self.trace, factor, method, seed))

    def between(self, begin: float, end: float) -> Traffic:
        """What arrives in [begin, end), from the first of it on."""
        return replace(self, trace=self.trace.between(begin, end))

    def units(self) -> list[str]:
        return list(dict.fromkeys(self.shapes[i].unit for i in np.unique(self.trace.input_size)))

    def of_unit(self, unit: str) -> Traffic:
        """The requests for this unit alone, from the first of them on."""
        mine = np.array([shape.unit == unit for shape in self.shapes])
        return replace(self, trace=self.trace.take(mine[self.trace.input_size]))

    def with_model(self, model: str, like: str, rate: float, seed: int) -> Traffic:
        """And requests for `model`, shaped and bunched as those for `like`, `rate` a second on average."""
        if like not in self.trace.models:
            known = ", ".join(self.trace.models)
            raise BadTrace(f"Nothing asks for {like} in {self.trace.name}; it has {known}.")
        pattern = self.trace.only([like])
        factor = rate * max(self.trace.span, 1e-9) / len(pattern)
        more = scaled(pattern, factor, Method.SHIFT, seed)
        moved = {index: len(self.shapes) + n for n, index in enumerate(np.unique(more.input_size).tolist())}
        shapes = [replace(self.shapes[index], unit=model) for index in moved]
        own = replace(
            more,
            models=(model,),
            model=np.zeros(len(more), dtype=np.int32),
            input_size=np.array([moved[index] for index in more.input_size.tolist()], dtype=np.int64),
        )
        both = merged([self.trace, replace(own, started=self.trace.started, notes=())], self.trace.name)
        return replace(self, trace=replace(both, notes=self.trace.notes), shapes=(*self.shapes, *shapes))

    def renamed(self, names: Mapping[str, str]) -> Traffic:
        """The same requests for other units."""
        shapes = tuple(replace(s, unit=names.get(s.unit, s.unit)) for s in self.shapes)
        known = {old: new for old, new in names.items() if old in self.trace.models}
        return replace(self, trace=self.trace.renamed(known), shapes=shapes)


@dataclass(slots=True)
class _Shaping:
    """Rows of a trace as shapes, and what had to be guessed."""

    server: Server
    kinds: tuple[Kind, ...]
    cut: int = 0
    guessed: int = 0

    def __call__(self, model: str, kind: int, size: int, answer: int) -> Shape:
        unit = self.server.units[model]
        generates, most = unit.facts.generative, unit.max_cost
        if kind == UNSAID or not self.kinds[kind].costs:
            self.guessed += kind != UNSAID
            self.cut += size > most
            tokens = max(1, answer) if generates else 0
            return Shape(model, (max(1, min(size, most)),), tokens, tokens)
        said = self.kinds[kind]
        jobs = len(said.costs)
        room = max(1, said.kv_tokens - sum(said.costs)) // jobs if generates else 0
        tokens = max(1, min(answer // jobs, room)) if generates else 0
        return Shape(model, said.costs, tokens, max(tokens, room), said.deadline, said.principal)

    @property
    def notes(self) -> tuple[str, ...]:
        told = []
        if self.cut:
            told.append(f"{self.cut} inputs are cut to what their model takes")
        if self.guessed:
            told.append(f"{self.guessed} requests were refused before they had a cost; it is taken by size")
        return tuple(told)
