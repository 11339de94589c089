"""`POST /v1/estimate`: the body of another call, and what is said of it without running it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import msgspec
from msgspec import Raw, Struct

from engine.errors import EngineError, InvalidInput, QueueFull
from engine.estimates import Estimated, Outlook
from engine.requests import Task
from web import errors
from web.wire import endpoints, free
from web.wire.bodies import Asked
from web.wire.decoding import Body, decode
from web.wire.forms import Form
from web.wire.items import Limits


class EstimateBody(Struct):
    """Either `task` and `model` beside the fields of that task's own body, or the path of any call that
    runs a model as `endpoint`, and its body as `request`."""

    task: Task | None = None
    model: str | None = None
    endpoint: str | None = None
    request: Raw = free.UNSENT


class Predicted(Struct):
    """Milliseconds. `load_ms` is null for a model that was never loaded, `run_ms` while too little of it
    has run; `total_ms` when either is."""

    wait_ms: float
    load_ms: float | None
    run_ms: float | None
    total_ms: float | None


class Why(Struct):
    """What the call itself would be told; `retry_after` in seconds."""

    code: str
    message: str
    retry_after: float | None


class Estimation(Struct):
    """`cost` and each of `costs`, one an item, are in `unit`, what the scheduler batches and charges by."""

    model: str
    task: Task
    unit: str
    cost: int
    costs: list[int]
    usage: dict[str, int]
    cold: bool
    predicted: Predicted
    decision: str
    """`admit`, `degrade` or `refuse`."""
    why: Why | None
    degrade_to: str | None


@dataclass(frozen=True, slots=True)
class Estimating(Asked):
    task: Task = Task.ENCODE
    model: str = ""


def read(body: Body, form: Form, limits: Limits) -> Estimating:
    head = decode(body, form, EstimateBody)
    if head.endpoint is not None:
        if not free.given(head.request):
            raise InvalidInput("request is missing: the body that would be sent to endpoint.")
        task, model, reader = endpoints.of(head.endpoint)
        asked = reader(bytes(head.request), form, limits)
        return _estimating(asked, task, model or getattr(asked, "model", ""))
    if head.task is None or not head.model:
        raise InvalidInput("Name task and model, or an endpoint and the request that it would be sent.")
    asked = endpoints.NATIVE[head.task](_without_head(body, form), form, limits)
    return _estimating(asked, head.task, head.model)


def _estimating(asked: Asked, task: Task, model: str) -> Estimating:
    common = {field.name: getattr(asked, field.name) for field in fields(Asked)}
    return Estimating(**common, task=task, model=model)


def _without_head(body: Body, form: Form) -> bytes:
    """The call's own body: some routes refuse what they do not know."""
    rest = decode(body, form, dict[str, Raw])
    kept = {name: raw for name, raw in rest.items() if name not in ("task", "model")}
    return msgspec.json.encode(kept) if form is Form.JSON else msgspec.msgpack.encode(kept)


def answer(task: Task, estimated: Estimated) -> dict[str, Any]:
    """As `Estimation`."""
    costed, outlook = estimated.costed, estimated.outlook
    used = costed.usage
    usage = {"input_tokens": used.input_tokens, "images": used.images, "pages": used.pages}
    degrades = isinstance(outlook.refusal, QueueFull) and costed.degrade is not None
    return {
        "model": costed.model,
        "task": task.value,
        "unit": costed.cost_unit,
        "cost": sum(costed.costs),
        "costs": list(costed.costs),
        "usage": {name: count for name, count in usage.items() if count or name == "input_tokens"},
        "cold": outlook.cold,
        "predicted": {
            "wait_ms": outlook.wait * 1000,
            "load_ms": _ms(outlook.load),
            "run_ms": _ms(outlook.run),
            "total_ms": _ms(_total(outlook)),
        },
        "decision": "degrade" if degrades else "refuse" if outlook.refusal else "admit",
        "why": _why(outlook.refusal) if outlook.refusal else None,
        "degrade_to": costed.degrade if degrades else None,
    }


def _why(error: EngineError) -> dict[str, Any]:
    return {"code": errors.code(error), "message": error.message, "retry_after": error.retry_after}


def _total(outlook: Outlook) -> float | None:
    if outlook.load is None or outlook.run is None:
        return None
    return outlook.wait + outlook.load + outlook.run


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
