"""Requests of recorded shapes: made up where their content was not kept, so that they cost what theirs did.

A model's costs are a straight line over what is sent: words, pixels or pages. Two estimates find it.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from engine.catalog import ModelSpec
from engine.errors import EngineError
from engine.requests import (
    EncodeOptions,
    ExtractOptions,
    GenerateOptions,
    Item,
    Media,
    Options,
    Request,
    ScoreOptions,
    ServiceClass,
    Task,
)
from replay.media import document, picture
from replay.trace import NO_SESSION, UNSAID, BadTrace, Trace
from replay.words import text

Estimate = Callable[[Request], Awaitable[tuple[int, ...]]]
"""What each item of a request would cost. Raises EngineError where it cannot be said."""

QUERY_WORDS = 8
LABELS = ("person", "organization", "place")
USUAL_TOKENS = 32
"""Of a request of which no size is known, where none of its model is."""

FEW, MANY = 16, 96
"""Words of the two texts that show a model's line."""

SMALL, LARGE = 224 * 224, 896 * 896


@dataclass(frozen=True, slots=True)
class Line:
    """Cost of what is sent: `each` for a word, a pixel or a page, and `fixed` beside."""

    each: float = 1.0
    fixed: float = 0.0
    seen: bool = False
    """False: nobody measured it; a word is taken to be a token."""

    def size(self, cost: int) -> int:
        """What must be sent to cost so much; at least 1."""
        return max(1, round((cost - self.fixed) / self.each)) if self.each > 0 else 1


@dataclass(frozen=True, slots=True)
class Call:
    """One request to be sent. `deadline` is in seconds from its sending."""

    request: Request
    deadline: float


@dataclass(slots=True)
class Maker:
    """Makes request after request of a trace."""

    trace: Trace
    specs: Sequence[ModelSpec]
    """Of each of the trace's models."""
    seed: int
    lines: Mapping[int, Line] = field(default_factory=dict)
    """By the model's index."""
    kept: Mapping[int, Request] = field(default_factory=dict)
    """Requests whose content was recorded, by the row of the recording."""
    _usual: list[int] = field(init=False)
    notes: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        trace = self.trace
        self._usual = []
        for index in range(len(trace.models)):
            sizes = trace.input_size[(trace.model == index) & (trace.input_size > 0)]
            self._usual.append(int(np.median(sizes)) if len(sizes) else USUAL_TOKENS)
        self._say_what_is_cut()

    def _say_what_is_cut(self) -> None:
        longest = np.array([spec.max_tokens or 1 << 40 for spec in self.specs])
        cut = int((self.trace.input_size > longest[self.trace.model]).sum())
        if cut:
            self.notes.append(f"{cut} inputs are cut to what their model takes")
        if guessed := [self.trace.models[m] for m, line in self.lines.items() if not line.seen]:
            self.notes.append(f"a word is taken to be a token of {', '.join(guessed)}")
        self.notes.append(
            "payloads are as they were recorded where that was kept, and made up where it was not"
            if self.kept
            else "payloads are synthetic: of the recorded sizes, without the recorded content"
        )

    def __call__(self, row: int) -> Call:
        """The request of a row. The same seed makes the same one."""
        trace = self.trace
        index = int(trace.model[row])
        spec, kind = self.specs[index], int(trace.kind[row])
        known = trace.kinds[kind] if kind != UNSAID else None
        session = int(trace.session[row])
        deadline = known.deadline if known else float("inf")
        marks = {
            "id": f"replay-{row}",
            "service_class": ServiceClass(int(trace.service_class[row])),
            "session": None if session == NO_SESSION else f"replay-{session}",
            "principal": known.principal if known else "",
        }
        if (had := self.kept.get(int(trace.row[row]))) is not None:
            return Call(replace(had, **marks), deadline)  # type: ignore[arg-type]
        task = Task(known.task) if known and known.task in spec.tasks else spec.tasks[0]
        costs = known.costs if known and known.costs else None
        size = int(trace.input_size[row]) or self._usual[index]
        rng = random.Random(f"{self.seed}/{row}")
        line = self.lines.get(index, Line())
        most = spec.max_tokens or 1 << 40
        items = tuple(item_of(spec, line.size(min(cost, most)), rng) for cost in costs or (size,))
        answer = int(trace.output_size[row])
        return Call(request_of(spec, task, items, answer, rng, **marks), deadline)


def item_of(spec: ModelSpec, size: int, rng: random.Random) -> Item:
    """One input of so many words, pixels or pages, whichever the model reads."""
    match spec.inputs[0]:
        case "image":
            return Item(images=(Media(picture(size), "jpeg"),))
        case "document":
            return Item(document=Media(document(min(size, 500)), "pdf"))
        case "text":
            return Item(text=text(size, rng))
        case other:
            raise BadTrace(f"{spec.id} reads {other}, which cannot be made up; record its payloads.")


def request_of(
    spec: ModelSpec,
    task: Task,
    items: tuple[Item, ...],
    answer: int,
    rng: random.Random,
    **marks: object,
) -> Request:
    options: Options
    match task:
        case Task.SCORE:
            options = ScoreOptions(query=Item(text=text(QUERY_WORDS, rng)))
        case Task.EXTRACT:
            options = ExtractOptions(labels=() if spec.labels or "text" not in spec.inputs else LABELS)
        case Task.GENERATE:
            options = GenerateOptions(max_new_tokens=max(1, answer))
        case _:
            options = EncodeOptions()
    return Request(task=task, model=spec.id, items=items, options=options, **marks)  # type: ignore[arg-type]


async def line_of(spec: ModelSpec, task: Task, estimate: Estimate) -> Line:
    """The model's line by two estimates; the usual one where it cannot be estimated."""
    rng = random.Random(0)
    kind = spec.inputs[0]
    sizes = {"image": (SMALL, LARGE), "document": (1, 3)}.get(kind, (FEW, _many(spec)))
    costs = []
    for size in sizes:
        made = request_of(spec, task, (item_of(spec, size, rng),), 1, rng, id="estimate")
        try:
            costs.append(sum(await estimate(made)))
        except EngineError:
            return Line()
    low, high = sizes
    each = (costs[1] - costs[0]) / (high - low)
    return Line(each, costs[0] - each * low, True)


def _many(spec: ModelSpec) -> int:
    """A text that no model cuts."""
    return MANY if spec.max_tokens is None else max(FEW + 1, min(MANY, spec.max_tokens // 2))


def most_wanted(trace: Trace, index: int, spec: ModelSpec) -> Task:
    """What this model is asked for in the trace; its first task where that is not said."""
    kinds = trace.kind[(trace.model == index) & (trace.kind != UNSAID)]
    if len(kinds):
        said = trace.kinds[int(np.bincount(kinds).argmax())].task
        if said in spec.tasks:
            return Task(said)
    return spec.tasks[0]
