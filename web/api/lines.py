"""A call that is a line of a batch: read, run and answered as its route reads, runs and answers it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
from aiohttp import web
from msgspec import Struct

from engine.access.principals import LOCAL, Action
from engine.batches.kept import Batch
from engine.batches.lines import Line
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput, Unauthorized
from engine.requests import Item, Request, Response, ServiceClass, Task
from web import dialects, errors
from web.access.guard import check
from web.api import naming
from web.api.openai.writing import created
from web.engine import Engine
from web.intake import Intake
from web.keys import ENGINE, INTAKE
from web.wire import answers, endpoints, pieces, rerank
from web.wire.bodies import Asked
from web.wire.decoding import Body, decode
from web.wire.endpoints import Reader
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.openai import chat_answers, completions, embeddings, responses_answers

LAST_LINES = 5.0
"""Seconds that batches get to write what they hold, when all that was in flight has ended."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a writer may need. `asked` is what the endpoint's own reader gave."""

    asked: Any
    spec: ModelSpec
    items: tuple[Item, ...]
    response: Response
    id: str


def _small(value: Mapping[str, Any]) -> list[bytes]:
    return [pieces.whole(value, Form.JSON)]


NATIVE: Mapping[Task, Callable[[Done], Iterable[bytes]]] = {
    Task.ENCODE: lambda d: pieces.of(
        answers.encoded(d.spec, d.items, d.asked.options.output_dtype, d.response), Form.JSON
    ),
    Task.SCORE: lambda d: pieces.of(answers.scored(d.items, d.asked.options.query.id, d.response), Form.JSON),
    Task.EXTRACT: lambda d: pieces.of(answers.extracted(d.items, d.response), Form.JSON),
    Task.GENERATE: lambda d: _small(answers.generated(d.response)),
}

NAMING: Mapping[str, Callable[[Done], Iterable[bytes]]] = {
    "/v1/rerank": lambda d: pieces.of(rerank.answer(d.asked, d.response, d.id, "1"), Form.JSON),
    "/v2/rerank": lambda d: pieces.of(rerank.answer(d.asked, d.response, d.id, "2"), Form.JSON),
    "/v1/embeddings": lambda d: pieces.of(embeddings.answer(d.asked, d.response), Form.JSON),
    "/v1/chat/completions": lambda d: _small(chat_answers.whole(d.asked, d.response, d.id, created())),
    "/v1/completions": lambda d: _small(completions.whole(d.asked, d.response, d.id, created())),
    "/v1/responses": lambda d: _small(responses_answers.whole(d.asked, d.response, d.id, created())),
}


class _Streamed(Struct):
    stream: bool | None = None


def _whole(reader: Reader, body: Body, form: Form, limits: Limits) -> Asked:
    """What a line's body asks for. Raises InvalidInput for one that is to be streamed: readers of calls
    that never stream would not look."""
    if decode(body, form, _Streamed).stream:
        raise InvalidInput("A line of a batch is answered whole; leave out stream.", param="stream")
    return reader(body, form, limits)


class Lines:
    """In the class `background`, as the batch's maker: what that key may not, its batch may not."""

    def __init__(self, engine: Engine, intake: Intake) -> None:
        self._engine = engine
        self._intake = intake

    async def answer(self, batch: Batch, call: Line, request_id: str) -> bytes:
        task, model, reader = endpoints.of(batch.endpoint)
        asked = await self._intake.decoded(bytes(call.body), partial(_whole, reader))
        name = model or getattr(asked, "model", "")
        await naming.known(self._engine, name, lambda model: self._maker(batch, model))
        spec, made = self._request(batch, task, name, asked, request_id)
        response = await self._engine.submit(made)
        if batch.job is not None and isinstance(wrong := response.outputs[0], EngineError):
            raise wrong  # a job's line is one item: it fails with it
        write = NAMING.get(batch.endpoint) or NATIVE[task]
        began, said = self._engine.now(), bytearray()
        for piece in write(Done(asked, spec, made.items, response, request_id)):
            if said:
                await anyio.lowlevel.checkpoint()  # others may run between two slices
            said += piece
        self._engine.encoded(response.model, self._engine.now() - began)
        return bytes(said)

    def refusal(self, batch: Batch, error: EngineError, request_id: str) -> tuple[int, bytes]:
        told = dialects.of(batch.endpoint)
        if told is None:
            return errors.status(error), pieces.json_bytes(errors.envelope(error, request_id))
        status, said = told(error, request_id)
        return status, pieces.json_bytes(said)

    def _request(
        self, batch: Batch, task: Task, model: str, asked: Asked, request_id: str
    ) -> tuple[ModelSpec, Request]:
        spec, profile, options = naming.chosen(self._engine.catalog, model, asked)
        return spec, Request(
            id=request_id,
            task=task,
            model=spec.id,
            items=asked.items,
            options=options,
            service_class=ServiceClass.BACKGROUND,
            session=None,
            profile=profile,
            principal=self._maker(batch, spec.id),
        )

    def _maker(self, batch: Batch, model: str) -> str:
        """Raises Unauthorized and Forbidden for what the maker may not any more."""
        if batch.owner == LOCAL.id:
            return ""
        access = self._engine.access
        maker = access.principals.get(batch.owner)
        if maker is None or maker.revoked is not None:
            raise Unauthorized("The key or user that made this batch was removed.")
        check(maker, Action.CALL)
        access.check_model(maker, model)
        access.seen(maker)
        return maker.id


async def batches(app: web.Application) -> AsyncIterator[None]:
    """As long as the application runs, so do batches."""
    engine = app[ENGINE]
    running = asyncio.create_task(engine.batches.run(Lines(engine, app[INTAKE])))
    yield
    engine.batches.stop()
    await asyncio.wait({running}, timeout=LAST_LINES)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
