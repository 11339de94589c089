"""`/rerank`: texts by their worth for a query. `/predict`: the classes of texts, or the score of pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
from aiohttp import web

from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import Options, Request, Task
from web import sending
from web.api import calls
from web.api.tei import which
from web.engine import Engine
from web.keys import ENGINE, INTAKE
from web.wire import pieces
from web.wire.forms import Form
from web.wire.tei import answers, bodies

AT_ONCE = 64
"""Requests of one body that are under way: enough to fill batches, few enough to leave the loop to others."""
Classes = list[dict[str, Any]]
"""`{label, score}`, the likeliest first."""


async def rerank(request: web.Request) -> web.StreamResponse:
    engine, model = request.app[ENGINE], which.model(request, "tei_rerank")
    spec = await calls.known(request, model)
    asked = await request.app[INTAKE].asked(request, bodies.rerank)
    assert isinstance(asked, bodies.Reranking)
    asked = replace(asked, options=_adapted(asked.options, asked.prompt_name, spec))
    _, made = await calls.of(request, Task.SCORE, model, asked)
    response = await engine.submit(made)
    said = pieces.listed(answers.ranks(made.items, response, with_text=asked.return_text))
    return await sending.pieced(request, said, Form.JSON, response.model, calls.headers(response))


async def predict(request: web.Request) -> web.StreamResponse:
    engine, model = request.app[ENGINE], which.model(request, "tei_predict")
    spec = await calls.known(request, model)
    asked = await request.app[INTAKE].asked(request, bodies.predict)
    assert isinstance(asked, bodies.Predicting)
    scores = Task.SCORE in spec.tasks
    _check(asked, spec, scores)
    asked = replace(asked, options=_adapted(asked.options, asked.prompt_name, spec))
    _, made = await calls.of(request, Task.SCORE if scores else Task.EXTRACT, model, asked)
    if scores:
        found, cut = await _pairs(engine, made, asked)
        headers = calls.truncated(cut)
    else:
        response = await engine.submit(made)
        found, headers = answers.classes(made.items, response), calls.headers(response)
    said = pieces.listed(found[0] if asked.alone else found)
    return await sending.pieced(request, said, Form.JSON, spec.id, headers)


def _adapted(options: Options, prompt_name: str | None, spec: ModelSpec) -> Options:
    """Raises InvalidInput for a name that is no adapter of the entry: prompts are for embedding."""
    if prompt_name is None:
        return options
    if prompt_name not in spec.loras:
        has = f"it has: {', '.join(spec.loras)}" if spec.loras else "it has none"
        raise InvalidInput(f"{spec.id} has no adapter {prompt_name[:100]!r} (prompt_name); {has}.")
    return replace(options, lora=prompt_name)


def _check(asked: bodies.Predicting, spec: ModelSpec, scores: bool) -> None:
    if scores and not asked.queries:
        raise InvalidInput(f'{spec.id} reads pairs: send inputs as ["query", "text"], or a list of such.')
    if not scores and asked.queries:
        raise InvalidInput(f'{spec.id} reads one text at a time: send inputs as "a" or [["a"], ["b"]].')


async def _pairs(engine: Engine, made: Request, asked: bodies.Predicting) -> tuple[list[Classes], int]:
    """One request of the engine for each first text; its answers go back to their pairs' places. And how
    many of the texts were cut."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, query in enumerate(asked.queries):
        places[query].append(place)
    found: list[Classes] = [[] for _ in made.items]
    cut: list[int] = []
    wrong: list[EngineError] = []
    going = anyio.Semaphore(AT_ONCE)

    async def ask(query: str, where: Sequence[int], scope: anyio.CancelScope) -> None:
        items = tuple(made.items[place] for place in where)
        try:
            options = asked.scoring(query, made.options.lora)
            response = await engine.submit(replace(made, items=items, options=options))
            for place, classes in zip(where, answers.scores(items, response), strict=True):
                found[place] = classes
            cut.append(response.usage.truncated)
        except EngineError as error:
            wrong.append(error if error.item is None else error.at(where[error.item]))
            scope.cancel()
        finally:
            going.release()

    async with anyio.create_task_group() as group:
        for query, where in places.items():
            await going.acquire()
            group.start_soon(ask, query, where, group.cancel_scope)
    if wrong:
        raise wrong[0]
    return found, sum(cut)
