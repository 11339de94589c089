"""A trace: what arrived when, and how large it was. Columns of equal length, in order of arrival."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.requests import ServiceClass

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_SESSION = -1

FIRST_DATE = 1e9
"""Seconds since the epoch in 2001: a clock that shows less counts from a start of its own."""


class BadTrace(Exception):
    """The trace cannot be used; the message says which file and line, and what to do."""


LONG, UNUSUAL = 60.0, 100.0
"""A gap between arrivals that is told of: in seconds, and in means of all."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What one request asked for, as far as a recording says. Requests that ask the same share one."""

    task: str
    costs: tuple[int, ...]
    """Of each job, in its model's own unit."""
    kv_tokens: int = 0
    """That its sequences could have come to hold, where text is written."""
    deadline: float = math.inf
    """Seconds from its arrival."""
    principal: str = ""

    def sized(self, inputs: float, outputs: float) -> Kind:
        """What its sequences hold beside their prompts is their answers'."""
        costs = tuple(max(1, round(cost * inputs)) for cost in self.costs)
        answers = max(0, self.kv_tokens - sum(self.costs))
        kv_tokens = sum(costs) + round(answers * outputs) if self.kv_tokens else 0
        return replace(self, costs=costs, kv_tokens=kv_tokens)


UNSAID = -1
"""The kind of a request of which only sizes are known."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Every column is (n,). `arrived` is in seconds since the first arrival and never falls."""

    name: str
    arrived: Floats
    model: NDArray[np.int32]
    """Index into `models`."""
    models: tuple[str, ...]
    input_size: Ints
    """In the source's own unit, tokens as a rule."""
    output_size: Ints
    session: Ints
    """A number for each session; `NO_SESSION` where a request has none."""
    service_class: NDArray[np.int8]
    row: Ints
    """Which row of its source each is; copies of a request share it."""
    kind: Ints
    """Index into `kinds`; `UNSAID` where the source knows sizes only."""
    kinds: tuple[Kind, ...] = ()
    started: float = 0.0
    """Seconds since the epoch of the first arrival; 0 where the source has no wall clock."""
    resolution: float = 0.0
    """Seconds; arrivals finer than this were not recorded. 0: fine enough."""
    notes: tuple[str, ...] = field(default=())
    """What reading it had to mend, for the report."""

    @classmethod
    def of(
        cls,
        name: str,
        arrived: Sequence[float] | Floats,
        *,
        models: Sequence[str],
        input_size: Sequence[int] | Ints,
        output_size: Sequence[int] | Ints | None = None,
        session: Sequence[int] | Ints | None = None,
        service_class: ServiceClass = ServiceClass.STANDARD,
    ) -> Self:
        """From rows in any order: sorted, negative sizes clamped to zero, and both said in the notes.

        `models` names each row's model. Raises BadTrace when there are no rows.
        """
        times = np.asarray(arrived, dtype=np.float64)
        if not len(times):
            raise BadTrace(f"{name} holds no requests.")
        if not np.isfinite(times).all():
            raise BadTrace(f"{name} has arrival times that are no numbers.")
        count = len(times)
        order = np.argsort(times, kind="stable")
        sorted_times = times[order]
        inputs, clamped_in = _sizes(input_size, count)
        outputs, clamped_out = _sizes(output_size if output_size is not None else np.zeros(count), count)
        resolution = _resolution(sorted_times)
        names = tuple(dict.fromkeys(models))
        number = {model: index for index, model in enumerate(names)}
        codes = np.fromiter((number[model] for model in models), dtype=np.int32, count=count)
        sessions = np.full(count, NO_SESSION) if session is None else np.asarray(session, dtype=np.int64)
        return cls(
            name=name,
            arrived=sorted_times - sorted_times[0],
            model=codes[order],
            models=names,
            input_size=inputs[order],
            output_size=outputs[order],
            session=sessions[order],
            service_class=np.full(count, service_class, dtype=np.int8),
            row=order,
            kind=np.full(count, UNSAID),
            started=float(sorted_times[0]) if sorted_times[0] > FIRST_DATE else 0.0,
            resolution=resolution,
            notes=tuple(_mended(times, sorted_times, clamped_in + clamped_out, resolution)),
        )

    def told(
        self,
        *,
        service_class: NDArray[np.int8],
        kind: Ints,
        kinds: tuple[Kind, ...],
        started: float,
        notes: tuple[str, ...],
    ) -> Trace:
        """The same with what only a recording knows of each row, in the order of these rows."""
        known = {"service_class": service_class, "kind": kind, "kinds": kinds}
        return replace(self, **known, started=started, notes=notes)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.arrived)

    @property
    def span(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.arrived[-1])

    @property
    def rate(self) -> float:
        """Mean requests per second over the span."""
        return len(self) / self.span if self.span else float(len(self))

    def take(self, chosen: NDArray[np.bool_] | Ints) -> Trace:
        """These rows only, from the first of them on. Raises BadTrace when none is left."""
        arrived = self.arrived[chosen]
        if not len(arrived):
            raise BadTrace(f"Nothing of {self.name} is left.")
        return replace(
            self,
            arrived=arrived - arrived[0],
            model=self.model[chosen],
            input_size=self.input_size[chosen],
            output_size=self.output_size[chosen],
            session=self.session[chosen],
            service_class=self.service_class[chosen],
            row=self.row[chosen],
            kind=self.kind[chosen],
            started=self.started + float(arrived[0]) if self.started else 0.0,
        )

    def between(self, begin: float, end: float) -> Trace:
        """What arrived in [begin, end), seconds from the start."""
        return self.take((self.arrived >= begin) & (self.arrived < end))

    def only(self, models: Sequence[str]) -> Trace:
        """The requests of these models."""
        wanted = [index for index, name in enumerate(self.models) if name in set(models)]
        return self.take(np.isin(self.model, wanted))

    def renamed(self, names: Mapping[str, str]) -> Trace:
        """The same traffic for other models; several may become one. Raises BadTrace for an unknown name."""
        if unknown := sorted(set(names) - set(self.models)):
            known = ", ".join(self.models)
            raise BadTrace(f"{self.name} has no model {', '.join(unknown)}; it has {known}.")
        told = [names.get(model, model) for model in self.models]
        models = tuple(dict.fromkeys(told))
        codes = np.array([models.index(model) for model in told], dtype=np.int32)
        return replace(self, models=models, model=codes[self.model])

    def sized(self, inputs: float, outputs: float) -> Trace:
        """Inputs and outputs so many times as large, at least 1 where there was something. Raises BadTrace
        for a factor that is not positive."""
        for name, factor in (("input", inputs), ("output", outputs)):
            if not (factor > 0 and math.isfinite(factor)):
                raise BadTrace(f"The {name} size scale {factor} is no positive number.")
        if inputs == outputs == 1:
            return self

        def scaled(sizes: Ints, factor: float) -> Ints:
            return np.where(sizes > 0, np.maximum(1, np.rint(sizes * factor)), 0).astype(np.int64)

        return replace(
            self,
            input_size=scaled(self.input_size, inputs),
            output_size=scaled(self.output_size, outputs),
            kinds=tuple(kind.sized(inputs, outputs) for kind in self.kinds),
        )

    def spread(self, seed: int) -> Trace:
        """Arrivals of a coarse clock moved about inside its ticks, evenly: else each tick is a burst."""
        if not self.resolution:
            return self
        moved = self.arrived + np.random.default_rng(seed).uniform(0, self.resolution, len(self))
        note = f"arrivals are spread inside ticks of {self.resolution:g} s, with seed {seed}"
        order = np.argsort(moved, kind="stable")
        kept = self.take(order)
        moved = moved[order]
        return replace(kept, arrived=moved - moved[0], resolution=0.0, notes=(*self.notes, note))


def merged(traces: Sequence[Trace], name: str | None = None) -> Trace:
    """Several traces as one, side by side by their wall clocks; from the same moment where they have none."""
    timed = all(trace.started for trace in traces)
    begin = min(trace.started for trace in traces) if timed else 0.0
    shifts = [trace.started - begin if timed else 0.0 for trace in traces]
    arrived = np.concatenate([t.arrived + shift for t, shift in zip(traces, shifts, strict=True)])
    order = np.argsort(arrived, kind="stable")
    models = tuple(dict.fromkeys(model for trace in traces for model in trace.models))
    codes = [np.array([models.index(m) for m in t.models], dtype=np.int32)[t.model] for t in traces]
    sessions, first_free = [], 0
    begins = np.cumsum([0, *(int(t.row.max()) + 1 for t in traces)]).tolist()
    rows = [trace.row + begin for trace, begin in zip(traces, begins, strict=False)]
    kinds, offsets = [], np.cumsum([0, *(len(t.kinds) for t in traces)]).tolist()
    for trace, offset in zip(traces, offsets, strict=False):
        kinds.append(np.where(trace.kind == UNSAID, UNSAID, trace.kind + offset))
        sessions.append(np.where(trace.session == NO_SESSION, NO_SESSION, trace.session + first_free))
        first_free += int(trace.session.max()) + 1
    return Trace(
        name=name or "+".join(trace.name for trace in traces),
        arrived=arrived[order],
        model=np.concatenate(codes)[order],
        models=models,
        input_size=np.concatenate([t.input_size for t in traces])[order],
        output_size=np.concatenate([t.output_size for t in traces])[order],
        session=np.concatenate(sessions)[order],
        service_class=np.concatenate([t.service_class for t in traces])[order],
        row=np.concatenate(rows)[order],
        kind=np.concatenate(kinds)[order],
        kinds=tuple(kind for trace in traces for kind in trace.kinds),
        started=begin,
        resolution=max(trace.resolution for trace in traces),
        notes=tuple(f"{trace.name}: {note}" for trace in traces for note in trace.notes),
    )


def _sizes(sizes: Sequence[int] | Ints | Floats, count: int) -> tuple[Ints, int]:
    found = np.asarray(sizes)
    assert len(found) == count
    return np.maximum(found, 0).astype(np.int64), int((found < 0).sum())


def _mended(times: Floats, in_order: Floats, clamped: int, resolution: float) -> Iterator[str]:
    """What is told of rows that were not as a trace is."""
    if (backwards := int((np.diff(times) < 0).sum())) > 0:
        yield f"{backwards} arrivals were out of order and have been sorted"
    if clamped:
        yield f"{clamped} negative sizes are taken as 0"
    yield from _gaps(in_order)
    if resolution > 0:
        yield f"arrivals are known to {resolution:.3g} s only"


def _gaps(times: Floats) -> list[str]:
    """What is to be said of times at which nothing came for so long that something was off, or all were."""
    gaps = np.diff(times)
    if not len(gaps) or not (long := gaps > max(LONG, UNUSUAL * float(gaps.mean()))).any():
        return []
    longest = int(gaps.argmax())
    since = times[longest] - times[0]
    told = f"nothing came for more than {LONG:g} s {int(long.sum())} times"
    return [f"{told}; longest for {gaps[longest]:.0f} s, {since:.0f} s after the begin"]


def _resolution(times: Floats) -> float:
    """The tick of the source's clock, when most arrivals share theirs with others; else 0."""
    gaps = np.diff(times)
    apart = gaps[gaps > 0]
    if not len(apart) or len(apart) > len(gaps) / 2:
        return 0.0
    return float(apart.min())
