"""Events as the rows of their tables."""

from __future__ import annotations

import json
import math
from typing import Any

from msgspec.structs import asdict

from engine.events import Acted, BatchDone, RequestDone, ResidencyChanged
from engine.view import EngineView

LARGEST = 2**63 - 1

Recorded = RequestDone | BatchDone | ResidencyChanged | Acted

Row = dict[str, Any]


def row(event: Recorded) -> Row:
    """The event as the columns of its table, its moment apart."""
    made = asdict(event)
    match event:
        case RequestDone():
            del made["arrived"], made["truncated"]  # the latter is for counting alone
            made["batches"] = ",".join([f"{batch}:{jobs}" for batch, jobs in event.batches])
            made["costs"] = ",".join(map(str, event.costs))
            made["deadline_seconds"] = None if math.isinf(event.deadline_seconds) else event.deadline_seconds
        case BatchDone():
            del made["started"]
        case ResidencyChanged() | Acted():
            del made["at"]
    return {name: storable(value) for name, value in made.items()}


def samples(view: EngineView) -> list[Row]:
    """How each device is: a row each."""
    waiting = sum(model.waiting for model in view.models)
    there = [residency for model in view.models for residency in model.residencies]
    return [
        {
            "device": device.name,
            "budget_bytes": device.budget_bytes,
            "lines": json.dumps(dict(device.lines)),
            "units": json.dumps({r.unit: r.weights_bytes for r in there if r.device == device.name}),
            "slots": device.slots,
            "busy_slots": device.busy_slots,
            "busy_seconds": device.busy_seconds,
            "utilisation": device.utilisation,
            "waiting": waiting,
            "held_bytes": view.held_bytes,
        }
        for device in view.devices
    ]


def storable(value: object) -> object:
    """SQLite refuses half a surrogate pair and 65 bits; a client's text or a broken clock may have them."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return max(-LARGEST, min(LARGEST, value)) if isinstance(value, int) else value
