"""Telemetry: counts what happened, for Prometheus. Queues and bytes are read when somebody scrapes."""

from __future__ import annotations

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
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
from engine.actors.tallies import SECONDS, Tallies
from engine.events import AnswerEncoded, BatchDone, JobsDropped, RequestDone, ResidencyChanged
from engine.view import EngineView

COST = tuple(4**n for n in range(1, 12))


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
        self._tallies = Tallies()
        self.registry.register(self._tallies)
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
                self.totals[message.outcome] += 1
                self._tallies.count(message)
            case AnswerEncoded():
                self._tallies.encoded(message.model, message.seconds)
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
