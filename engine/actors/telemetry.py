"""Telemetry: counts what happened, for Prometheus. Queues and bytes are read when somebody scrapes."""

from __future__ import annotations

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from engine.actors.actor import Actor, Mailbox
from engine.actors.messages import TelemetryMessage
from engine.events import AnswerEncoded, BatchDone, JobsDropped, RequestDone, ResidencyChanged
from engine.requests import ServiceClass
from engine.view import EngineView

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
COST = tuple(4**n for n in range(1, 12))

STAGES = ("prepare", "queue", "load", "run", "total")


@dataclass(frozen=True, slots=True)
class _Lines:
    """What requests of one model, task and outcome are counted on."""

    requests: Counter
    items: Counter
    tokens_in: Counter
    tokens_out: Counter
    truncated: Counter
    stages: tuple[tuple[str, Histogram], ...]


class Telemetry(Actor[TelemetryMessage]):
    def __init__(self, mailbox: Mailbox[TelemetryMessage]) -> None:
        super().__init__(mailbox)
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, which nobody reads
        self.registry = CollectorRegistry()
        self.totals: Counts[str] = Counts()
        """Requests by outcome since the start."""
        self.residency: Counts[tuple[str, str]] = Counts()
        """Changes by unit and event."""
        self.device_seconds: dict[str, float] = defaultdict(float)
        """Seconds that slots were held, by device."""
        self._lines: dict[tuple[str, str, str], _Lines] = {}
        self._requests = self._counter("requests", "Requests by outcome", "model", "task", "outcome")
        self._stage = self._histogram(
            "stage_seconds", "Seconds of a request by stage", SECONDS, "model", "stage"
        )
        self._answered = self._histogram(
            "class_seconds", "Seconds of an answered request, by class", SECONDS, "class"
        )
        self._classes = {c: self._answered.labels(c.name.lower()) for c in ServiceClass}
        self._tokens = self._counter("tokens", "Tokens in and out", "model", "direction")
        self._items = self._counter("items", "Items answered", "model")
        self._truncated = self._counter("truncated", "Inputs that were cut to the model's length", "model")
        self._device = self._counter("device_seconds", "Seconds that slots were held", "unit", "device")
        self._cost = self._histogram("batch_cost", "Cost of a batch in the model's unit", COST, "unit")
        self._jobs = self._counter("batch_jobs", "Jobs that ran", "unit")
        self._batches = self._counter("batches", "Batches that ran", "unit", "device")
        self._dropped = self._counter(
            "jobs_dropped", "Jobs that left the queue without running", "unit", "reason"
        )
        self._changes = self._counter(
            "residency_changes", "Loads, evictions, failures", "unit", "device", "event"
        )
        self._thrash = self._counter("thrash", "Loads after several evictions in a short time", "model")
        self._loading = self._histogram("load_seconds", "Seconds of a load", SECONDS, "unit")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"serai_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"serai_{name}", text, labels, buckets=buckets, registry=self.registry)

    def handle(self, message: TelemetryMessage) -> None:
        match message:
            case RequestDone():
                self._count_request(message)
            case AnswerEncoded():
                self._stage.labels(message.model, "encode").observe(message.seconds)
            case BatchDone():
                self.device_seconds[message.device] += message.seconds
                self._device.labels(message.unit, message.device).inc(message.seconds)
                self._batches.labels(message.unit, message.device).inc()
                self._jobs.labels(message.unit).inc(message.jobs)
                self._cost.labels(message.unit).observe(message.cost)
            case JobsDropped():
                self._dropped.labels(message.unit, message.reason).inc(message.jobs)
            case ResidencyChanged():
                self.residency[message.unit, message.event] += 1
                self._changes.labels(message.unit, message.device, message.event).inc()
                if message.thrash:
                    self._thrash.labels(message.unit.partition("#")[0].partition("@")[0]).inc()
                if message.event == "loaded":
                    self._loading.labels(message.unit).observe(message.seconds)
            case _:
                assert_never(message)

    def _count_request(self, done: RequestDone) -> None:
        # A name that no entry has is the caller's: as a label it would let callers grow this without end.
        model = "unknown" if done.outcome == "MODEL_NOT_FOUND" else done.model
        self.totals[done.outcome] += 1
        key = (model, done.task, done.outcome)
        if key not in self._lines:  # looking labels up costs more than counting, and each request counts ten
            self._lines[key] = self._make_lines(*key)
        lines = self._lines[key]
        lines.requests.inc()
        if done.outcome not in ("ok", "degraded"):
            return
        lines.items.inc(done.items)
        lines.tokens_in.inc(done.input_tokens)
        lines.tokens_out.inc(done.output_tokens)
        self._classes[ServiceClass(done.service_class)].observe(done.total_seconds)
        if done.truncated:
            lines.truncated.inc(done.truncated)
        for stage, line in lines.stages:
            line.observe(getattr(done, stage))

    def _make_lines(self, model: str, task: str, outcome: str) -> _Lines:
        return _Lines(
            requests=self._requests.labels(model, task, outcome),
            items=self._items.labels(model),
            tokens_in=self._tokens.labels(model, "in"),
            tokens_out=self._tokens.labels(model, "out"),
            truncated=self._truncated.labels(model),
            stages=tuple((f"{stage}_seconds", self._stage.labels(model, stage)) for stage in STAGES),
        )

    def exposition(self, view: Callable[[], EngineView], accepting: bool) -> bytes:
        """Everything in Prometheus' text format: what was counted, and what one look shows now."""
        now = CollectorRegistry()
        now.register(_Now(replace(view(), accepting=accepting)))
        return generate_latest(self.registry) + generate_latest(now)


class _Now(Collector):
    def __init__(self, view: EngineView) -> None:
        self._view = view

    def collect(self) -> Iterator[GaugeMetricFamily]:
        view = self._view
        waiting = GaugeMetricFamily("serai_waiting_jobs", "Jobs in the queue", labels=["model", "class"])
        oldest = GaugeMetricFamily("serai_oldest_seconds", "Age of the oldest job", labels=["model"])
        resident = GaugeMetricFamily("serai_resident_bytes", "Weights on a device", labels=["unit", "device"])
        for model in view.models:
            if model.waiting:
                for name, jobs in model.waiting_by_class.items():
                    waiting.add_metric([model.id, name], jobs)
                oldest.add_metric([model.id], model.oldest)
            for r in model.residencies:
                resident.add_metric([r.unit, r.device], r.weights_bytes)
        total = GaugeMetricFamily("serai_device_total_bytes", "Bytes that it has", labels=["device"])
        slots = GaugeMetricFamily("serai_device_slots", "Batches that it runs at once", labels=["device"])
        alarm = GaugeMetricFamily("serai_device_alarm", "1 where something is wrong", labels=["device"])
        budget = GaugeMetricFamily("serai_device_budget_bytes", "Bytes that may be held", labels=["device"])
        held = GaugeMetricFamily("serai_device_held_bytes", "Bytes held, by line", labels=["device", "line"])
        busy = GaugeMetricFamily("serai_device_busy_slots", "Slots that run a batch", labels=["device"])
        for device in view.devices:
            budget.add_metric([device.name], device.budget_bytes)
            busy.add_metric([device.name], device.busy_slots)
            total.add_metric([device.name], device.total_bytes)
            slots.add_metric([device.name], device.slots)
            alarm.add_metric([device.name], float(bool(device.alarm)))
            for line, size in device.lines.items():
                held.add_metric([device.name, line], size)
        requests = GaugeMetricFamily(
            "serai_held_request_bytes", "Bodies and prepared inputs", view.held_bytes
        )
        yield from (waiting, oldest, resident, total, budget, held, slots, busy, alarm, requests)
        yield GaugeMetricFamily("serai_thrashing", "1 while units turn each other out", float(view.thrashing))
        yield GaugeMetricFamily("serai_accepting", "0 while the server drains", float(view.accepting))
