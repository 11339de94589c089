"""From an HTTP request to the engine's: the model, the body, and what the headers say of the caller."""

from __future__ import annotations

from aiohttp import web
from structlog.contextvars import bind_contextvars

from engine.catalog import ModelSpec
from engine.requests import Request, Response, Task
from web import caller
from web.access.current import current, stamped
from web.api import naming
from web.intake import Reader
from web.keys import ARRIVED, ENGINE, INTAKE, REQUEST_ID
from web.wire.bodies import Asked


async def call(request: web.Request, task: Task, reader: Reader) -> tuple[ModelSpec, Request, Asked]:
    """Everything that a handler needs. An unknown model is refused before the body is read."""
    model = request.match_info["model"]
    await known(request, model)
    asked = await request.app[INTAKE].asked(request, reader)
    spec, made = await of(request, task, model, asked)
    return spec, made, asked


async def known(request: web.Request, model: str) -> ModelSpec:
    """The entry of the model that the caller names. Raises UnknownModel, Forbidden."""
    engine, principal = request.app[ENGINE], current(request)

    def check(name: str) -> None:
        if principal is not None:
            engine.access.check_model(principal, name)

    return await naming.known(engine, model, check)


async def of(request: web.Request, task: Task, model: str, asked: Asked) -> tuple[ModelSpec, Request]:
    """The engine's request for what a body asks of `model`, wherever the body's route has its name from."""
    engine = request.app[ENGINE]
    await known(request, model)
    deadline = caller.deadline(request.headers, request[ARRIVED])
    said = caller.service_class(request.headers)
    spec, profile, options = naming.chosen(engine.catalog, model, asked)
    made = Request(
        id=request[REQUEST_ID],
        task=task,
        model=spec.id,
        items=asked.items,
        options=options,
        service_class=asked.service_class if said is None else said,
        deadline=deadline,
        session=caller.session(request.headers, engine.session_key),
        profile=profile,
        principal=caller.principal(request.headers, engine.session_key),
    )
    made = stamped(request, made)
    bind_contextvars(model=made.model, task=str(made.task), principal=made.principal)
    return spec, made


def headers(response: Response, **units: int) -> dict[str, str]:
    """What a response says beside its body: milliseconds of each stage, units, and where it ran."""
    spent, used = response.timing, response.usage
    found = {
        "X-Total-Time": spent.total,
        "X-Queue-Time": spent.queue,
        "X-Load-Time": spent.load,
        "X-Tokenization-Time": spent.prepare,
        "X-Inference-Time": spent.run,
    }
    counted = {
        "Input-Tokens": used.input_tokens,
        "Output-Tokens": used.output_tokens,
        "Images": used.images,
        "Pages": used.pages,
        "Audio-Ms": used.audio_ms,
        **units,
    }
    degraded = {"X-Serai-Degraded": response.degraded_from} if response.degraded_from else {}
    revision = {"X-SIE-Model-Revision": response.revision} if response.revision else {}
    return {
        **{name: f"{seconds * 1000:.3f}" for name, seconds in found.items()},
        **{f"X-SIE-Units-{name}": str(count) for name, count in counted.items() if count},
        "X-SIE-Served-By": "local",
        "X-Serai-Cold": "true" if response.cold else "false",
        "X-Serai-Device": response.device,
        **degraded,
        **revision,
        **truncated(used.truncated),
    }


def truncated(inputs: int) -> dict[str, str]:
    """Of so many inputs only the beginning was read: never kept from whoever sent them."""
    return {"X-Serai-Truncated": str(inputs)} if inputs else {}
