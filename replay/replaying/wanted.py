"""Which part of a trace is replayed, and how it is changed: each change is named in the report. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from replay.answers import Answers
from replay.scaling import Method, scaled
from replay.trace import NO_SESSION, BadTrace, Floats, Trace

WRONG = (
    "INVALID_INPUT",
    "INPUT_TOO_LONG",
    "MODEL_NOT_FOUND",
    "BODY_TOO_LARGE",
    "UNAUTHORIZED",
    "FORBIDDEN",
    "NOT_FOUND",
)
"""Outcomes of requests that no server could have answered: they are not sent again."""


@dataclass(frozen=True, slots=True)
class Wanted:
    speed: float = 1.0
    scale: float = 1.0
    method: Method = Method.WARP
    input_scale: float = 1.0
    output_scale: float = 1.0
    only: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    """Model of the source -> model that is asked instead."""
    between: tuple[float, float] | None = None
    """Seconds from the start."""
    seed: int = 0

    def settings(self) -> Iterator[tuple[str, str]]:
        """What makes the traffic another one than was recorded, for the report."""
        if self.between:
            yield "between", f"{self.between[0]:g} s and {self.between[1]:g} s"
        if self.only:
            yield "only", ", ".join(self.only)
        yield from ((f"{name} becomes", model) for name, model in self.names.items())
        if self.input_scale != 1:
            yield "inputs", f"{self.input_scale:.3g} times"
        if self.output_scale != 1:
            yield "outputs", f"{self.output_scale:.3g} times"
        if self.scale != 1:
            yield "load", f"{self.scale:g} times, by {self.method}"
        if self.speed != 1:
            yield "speed", f"{self.speed:g} times"


@dataclass(frozen=True, slots=True)
class Chosen:
    trace: Trace
    original: Answers | None
    """What was recorded of the same requests, before they were scaled."""
    latency: Floats
    """What was recorded of each row of the trace; 0 where nothing was."""


def chosen(trace: Trace, answers: Answers | None, wanted: Wanted) -> Chosen:
    """The traffic to send. Raises BadTrace when nothing of it is left, or a factor is none."""
    if not (wanted.speed > 0 and np.isfinite(wanted.speed)):
        raise BadTrace(f"The speed {wanted.speed} is no positive number.")
    if wanted.between and wanted.between[0] >= wanted.between[1]:
        raise BadTrace(f"Nothing lies between {wanted.between[0]:g} and {wanted.between[1]:g} s.")
    mask = _mask(trace, answers, wanted)
    wrong = int((~mask & _inside(trace, wanted)).sum())
    part = trace.take(mask).renamed({k: v for k, v in wanted.names.items() if k in trace.models})
    original = answers.take(mask).renamed(wanted.names) if answers is not None else None
    if unknown := [name for name in wanted.names if name not in trace.models]:
        raise BadTrace(f"{trace.name} has no {', '.join(unknown)}; it has {', '.join(trace.models)}.")
    made = used(part).spread(wanted.seed).sized(wanted.input_scale, wanted.output_scale)
    if wanted.scale != 1:
        made = scaled(made, wanted.scale, wanted.method, wanted.seed)
    if wanted.speed != 1:
        made = replace(made, arrived=made.arrived / wanted.speed)
    latency = np.zeros(len(made))
    if answers is not None:
        took = answers.latency[made.row]
        latency = np.where(np.isfinite(took), took, 0.0)
    return Chosen(replace(made, notes=(*made.notes, *left_out(wrong))), original, latency)


def left_out(wrong: int) -> tuple[str, ...]:
    """What is said of so many requests that ended as one of `WRONG`."""
    return (f"{wrong} requests that no server could answer are left out",) if wrong else ()


def _inside(trace: Trace, wanted: Wanted) -> np.ndarray:
    begin, end = wanted.between or (0.0, np.inf)
    inside = (trace.arrived >= begin) & (trace.arrived < end)
    if wanted.only:
        if unknown := sorted(set(wanted.only) - set(trace.models)):
            raise BadTrace(f"{trace.name} has no {', '.join(unknown)}; it has {', '.join(trace.models)}.")
        inside &= np.isin(trace.model, [trace.models.index(name) for name in wanted.only])
    return np.asarray(inside)


def _mask(trace: Trace, answers: Answers | None, wanted: Wanted) -> np.ndarray:
    inside = _inside(trace, wanted)
    return inside if answers is None else inside & ~answers.ended(*WRONG)


def used(trace: Trace) -> Trace:
    """Without models that nothing asks for any more: whoever is asked need not have them."""
    used = np.unique(trace.model)
    place = np.zeros(len(trace.models), dtype=np.int32)
    place[used] = np.arange(len(used))
    return replace(
        trace, models=tuple(trace.models[index] for index in used.tolist()), model=place[trace.model]
    )


def think_times(trace: Trace, latency: Floats) -> Floats:
    """Seconds between the answer to a session's request and its next one, as recorded; 0 for a first one."""
    think = np.zeros(len(trace))
    last: dict[int, int] = {}
    for row, session in enumerate(trace.session.tolist()):
        if session == NO_SESSION:
            continue
        if (before := last.get(session)) is not None:
            gap = float(trace.arrived[row] - trace.arrived[before])
            think[row] = max(0.0, gap - float(latency[before]))
        last[session] = row
    return think
