"""What requests have come to, by model: plain numbers, written out for Prometheus when somebody scrapes.

Each request counts on a dozen lines. A line of the library has a lock and looks through its buckets one by
one; that was a tenth of all that a request costs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from engine.events import RequestDone
from engine.requests import ServiceClass

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_BOUNDS = (*(str(float(bound)) for bound in SECONDS), "+Inf")


@dataclass(slots=True)
class Durations:
    """How often something took how long: by the first bound of `SECONDS` that it was within."""

    counts: list[int] = field(default_factory=lambda: [0] * len(_BOUNDS))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds

    def write(self, family: HistogramMetricFamily, labels: list[str]) -> None:
        buckets = list(zip(_BOUNDS, map(float, accumulate(self.counts)), strict=True))
        family.add_metric(labels, buckets, self.total)


@dataclass(slots=True)
class Tally:
    """Of one model."""

    outcomes: Counts[tuple[str, str]] = field(default_factory=Counts)
    """Requests by task and outcome."""
    items: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    truncated: int = 0
    prepare: Durations = field(default_factory=Durations)
    queue: Durations = field(default_factory=Durations)
    load: Durations = field(default_factory=Durations)
    run: Durations = field(default_factory=Durations)
    total: Durations = field(default_factory=Durations)
    encode: Durations | None = None

    def add(self, done: RequestDone) -> None:
        """One that was answered."""
        self.items += done.items
        self.tokens_in += done.input_tokens
        self.tokens_out += done.output_tokens
        self.truncated += done.truncated
        self.prepare.add(done.prepare_seconds)
        self.queue.add(done.queue_seconds)
        self.load.add(done.load_seconds)
        self.run.add(done.run_seconds)
        self.total.add(done.total_seconds)

    def stages(self) -> Iterator[tuple[str, Durations]]:
        for name in ("prepare", "queue", "load", "run", "total"):
            yield name, getattr(self, name)
        if self.encode is not None:
            yield "encode", self.encode


class Tallies(Collector):
    def __init__(self) -> None:
        self._models: dict[str, Tally] = {}
        self._classes = [Durations() for _ in ServiceClass]  # by a class's number

    def count(self, done: RequestDone) -> None:
        # A name that no entry has is the caller's: as a label it would let callers grow this without end.
        tally = self._of("unknown" if done.outcome == "MODEL_NOT_FOUND" else done.model)
        tally.outcomes[done.task, done.outcome] += 1
        if done.outcome in ("ok", "degraded"):
            tally.add(done)
            self._classes[done.service_class].add(done.total_seconds)

    def encoded(self, model: str, seconds: float) -> None:
        """An answer of `model` was written out."""
        tally = self._of(model)
        if tally.encode is None:
            tally.encode = Durations()
        tally.encode.add(seconds)

    def _of(self, model: str) -> Tally:
        tally = self._models.get(model)
        if tally is None:
            tally = self._models[model] = Tally()
        return tally

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "serai_requests", "Requests by outcome", labels=["model", "task", "outcome"]
        )
        items = CounterMetricFamily("serai_items", "Items answered", labels=["model"])
        tokens = CounterMetricFamily("serai_tokens", "Tokens in and out", labels=["model", "direction"])
        truncated = CounterMetricFamily(
            "serai_truncated", "Inputs that were cut to the model's length", labels=["model"]
        )
        stages = HistogramMetricFamily(
            "serai_stage_seconds", "Seconds of a request by stage", labels=["model", "stage"]
        )
        for model, tally in self._models.items():
            for (task, outcome), count in tally.outcomes.items():
                requests.add_metric([model, task, outcome], count)
            items.add_metric([model], tally.items)
            tokens.add_metric([model, "in"], tally.tokens_in)
            tokens.add_metric([model, "out"], tally.tokens_out)
            truncated.add_metric([model], tally.truncated)
            for stage, durations in tally.stages():
                durations.write(stages, [model, stage])
        classes = HistogramMetricFamily(
            "serai_class_seconds", "Seconds of an answered request, by class", labels=["class"]
        )
        for service_class in ServiceClass:
            self._classes[service_class].write(classes, [service_class.name.lower()])
        yield from (requests, stages, classes, tokens, items, truncated)
