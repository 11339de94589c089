"""What each principal has used since the start: an observer of what happens, beside telemetry."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from engine.access.principals import Kind, Principal
from engine.actors.messages import Event
from engine.events import BatchDone, RequestDone

KNOWN = (f"{Kind.KEY}:", f"{Kind.USER}:")
"""How the principals begin whose use is counted."""

RECENT = 4096
"""Batches whose time is remembered for the requests that were in them."""


@dataclass(slots=True)
class Used:
    requests: Counts[str] = field(default_factory=Counts)
    """By outcome."""
    cost: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    device_seconds: float = 0.0
    """Of each batch the share that its jobs had in it."""


class Usage:
    """Told what ends; knows who asked. Nothing waits for it."""

    def __init__(self) -> None:
        self.by: dict[str, Used] = {}
        self._seconds: dict[int, float] = {}

    def tell(self, event: Event) -> None:
        if isinstance(event, BatchDone):
            self._seconds[event.batch] = event.seconds / max(1, event.jobs)
            if len(self._seconds) > RECENT:
                del self._seconds[next(iter(self._seconds))]
        elif isinstance(event, RequestDone) and event.principal.startswith(KNOWN):
            self._count(event)

    def _count(self, done: RequestDone) -> None:
        used = self.by.setdefault(done.principal, Used())
        used.requests[done.outcome] += 1
        used.cost += done.cost
        used.input_tokens += done.input_tokens
        used.output_tokens += done.output_tokens
        used.device_seconds += sum(self._seconds.get(batch, 0.0) * jobs for batch, jobs in done.batches)

    def exposition(self, principals: Mapping[str, Principal], in_flight: Mapping[str, int]) -> bytes:
        """Prometheus' text, by the principal's name; a revoked one keeps its lines until the next start."""
        registry = CollectorRegistry()
        registry.register(_Lines(self.by, principals, in_flight))
        return generate_latest(registry)


class _Lines(Collector):
    def __init__(
        self, by: Mapping[str, Used], principals: Mapping[str, Principal], in_flight: Mapping[str, int]
    ) -> None:
        self._by, self._principals, self._in_flight = by, principals, in_flight

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        who = ["principal", "name"]
        requests = CounterMetricFamily(
            "serai_principal_requests", "Requests by who asked and outcome", labels=[*who, "outcome"]
        )
        cost = CounterMetricFamily("serai_principal_cost", "Cost in the models' own units", labels=who)
        tokens = CounterMetricFamily("serai_principal_tokens", "Tokens", labels=[*who, "direction"])
        device = CounterMetricFamily("serai_principal_device_seconds", "Share of batches' time", labels=who)
        running = GaugeMetricFamily("serai_principal_in_flight", "Requests in flight", labels=who)
        for principal, used in self._by.items():
            found = self._principals.get(principal)
            names = [principal, found.name if found else ""]
            for outcome, count in used.requests.items():
                requests.add_metric([*names, outcome], count)
            cost.add_metric(names, used.cost)
            tokens.add_metric([*names, "in"], used.input_tokens)
            tokens.add_metric([*names, "out"], used.output_tokens)
            device.add_metric(names, used.device_seconds)
            running.add_metric(names, self._in_flight.get(principal, 0))
        yield from (requests, cost, tokens, device, running)
