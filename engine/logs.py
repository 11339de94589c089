"""Loggers that take fields, and what an engine says of what happens in it. Nothing of a payload."""

from __future__ import annotations

import logging
from typing import Any, cast

import structlog
from structlog.stdlib import BoundLogger
from structlog.typing import EventDict

from engine.actors.messages import Event
from engine.events import BatchDone, RequestDone, ResidencyChanged
from engine.requests import ServiceClass


def fields_logger(name: str) -> BoundLogger:
    """One whose lines go the way of the standard library's; the level is asked before anything is made."""
    logger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, _to_record],
        wrapper_class=BoundLogger,
        cache_logger_on_first_use=True,
    )
    return cast(BoundLogger, logger)


def _to_record(logger: Any, method: str, event: EventDict) -> tuple[tuple[Any], dict[str, Any]]:
    """What the standard logger is called with: the fields go as an attribute of its record."""
    return (event.pop("event"),), {"extra": {"fields": dict(event)}}


class Narrator:
    """An observer: loads and evictions at level info, requests and batches at level debug.

    A request names its batches and a batch its unit and device, so the life of a request can be followed.
    """

    def __init__(self) -> None:
        self._standard = logging.getLogger(__name__)
        self._log = fields_logger(__name__)

    def tell(self, event: Event) -> None:
        if isinstance(event, ResidencyChanged):
            self._moved(event)
        elif not self._standard.isEnabledFor(logging.DEBUG):
            return
        elif isinstance(event, RequestDone):
            self._log.debug("request ended", **request_fields(event))
        elif isinstance(event, BatchDone):
            self._log.debug(
                "batch ran",
                batch=event.batch,
                unit=event.unit,
                device=event.device,
                slot=event.slot,
                jobs=event.jobs,
                cost=event.cost,
                run_ms=_ms(event.seconds),
                predicted_ms=_ms(event.predicted),
            )

    def _moved(self, event: ResidencyChanged) -> None:
        self._log.info(
            event.event,
            unit=event.unit,
            device=event.device,
            load_ms=_ms(event.seconds),
            weights_bytes=event.weights_bytes,
            reason=event.reason,
            thrash=event.thrash,
            from_host=event.from_host,
        )


def request_fields(done: RequestDone) -> dict[str, object]:
    """What a line says of a request that has ended: ids, names, numbers."""
    # A name that no entry has is the caller's own text.
    model = "unknown" if done.outcome == "MODEL_NOT_FOUND" else done.model
    return {
        "request_id": done.request,
        "model": model,
        "task": str(done.task),
        "class": ServiceClass(done.service_class).name.lower(),
        "principal": done.principal,
        "outcome": done.outcome,
        "items": done.items,
        "cost": done.cost,
        "prepare_ms": _ms(done.prepare_seconds),
        "queue_ms": _ms(done.queue_seconds),
        "load_ms": _ms(done.load_seconds),
        "run_ms": _ms(done.run_seconds),
        "truncated": done.truncated,
        "degraded": done.degraded_from or "",
        "device": done.device,
        "batches": [batch for batch, _ in done.batches],
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
