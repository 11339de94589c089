"""The numbers that the scheduler works by, from the settings. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.requests import ServiceClass

QUANTUM_SHARE = 1 / 8
"""While interactive work is about, nothing else runs longer than this share of its target."""

BATCH_SHARE = 1 / 2
"""A batch is predicted to take no more than this share of its own class's target."""


@dataclass(frozen=True, slots=True)
class SchedulingRules:
    targets: Mapping[ServiceClass, float] = field(
        default_factory=lambda: {
            ServiceClass.INTERACTIVE: 0.2,
            ServiceClass.STANDARD: 2.0,
            ServiceClass.BACKGROUND: 60.0,
        }
    )
    """p99 targets in seconds."""
    interactive_window: float = 10.0
    """Interactive work seen so many seconds ago still bounds the batches of the others."""
    quantum: float = 0.05
    """Seconds of one generation quantum, at most."""
    floors: Mapping[ServiceClass, float] = field(
        default_factory=lambda: {ServiceClass.STANDARD: 0.05, ServiceClass.BACKGROUND: 0.05}
    )
    """Least share of device time of a class that waits."""
    max_waiting_jobs: int = 20_000
    max_model_jobs: int = 10_000
    max_model_cost: int = 20_000_000
    max_key_jobs: int = 5_000
    """Of one principal, once there is more than one."""
    window_share: float = 0.1
    """Of its class's target that a batch may wait for company at most."""
    batch_cost: int = 2048
    """Largest batch of a unit that says nothing itself: past the cache, more only waits longer."""
