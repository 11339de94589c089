"""Which lanes a device would serve next, in which order, and why: for whoever looks on. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.requests import ServiceClass
from engine.scheduling.filling import Filling
from engine.scheduling.policy import Why

MOST = 20
"""Lanes that are told."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a lane stands among those that a device could serve."""

    unit: str
    service_class: ServiceClass
    jobs: int
    cost: int
    had: float
    """Weighted device-seconds of its share in this class, beyond what the one with the least has had."""
    due_in: float
    """Seconds until its first job should be done; negative when it is late."""
    seconds: float
    """Predicted run time of its next batch; 0 while nothing is known."""
    held_for: float
    """Seconds that it would still wait for company on a free slot; 0 when it would not."""
    why: Why


def standings(filling: Filling, device: str, now: float) -> list[Standing]:
    """The lanes that wait for `device` in the order in which it would serve them, if nothing else came."""
    waiting = filling.candidates(device, now)
    least: dict[ServiceClass, float] = {}
    order: list[Standing] = []
    while waiting and len(order) < MOST:
        chosen, why, virtual = filling.share.pick(waiting, now)
        waiting.remove(chosen)
        least.setdefault(chosen.service_class, virtual)
        lane = filling.lanes.get(chosen.unit)
        order.append(
            Standing(
                unit=chosen.unit,
                service_class=chosen.service_class,
                jobs=len(lane) if lane else 0,
                cost=lane.cost if lane else 0,
                had=filling.share.virtual(chosen.unit, chosen.service_class) - least[chosen.service_class],
                due_in=chosen.due - now,
                seconds=chosen.seconds,
                held_for=max(0.0, chosen.held_until - now),
                why=why,
            )
        )
    return order
