"""`/embed`, `/embed_all`, `/embed_sparse`: texts or token ids to vectors, as bare lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from aiohttp import web

from engine.catalog import ModelSpec
from engine.errors import InvalidInput
from engine.requests import EncodeOptions, Item, Response, Task
from web import sending
from web.api import calls
from web.api.tei import which
from web.intake import Reader
from web.keys import ENGINE, INTAKE
from web.wire import pieces
from web.wire.forms import Form
from web.wire.tei import answers, bodies

Shape = Callable[[Sequence[Item], Response], Iterable[Any]]


async def embed(request: web.Request) -> web.StreamResponse:
    return await _embed(request, bodies.embed, answers.dense)


async def embed_all(request: web.Request) -> web.StreamResponse:
    return await _embed(request, bodies.embed_all, answers.tokens)


async def embed_sparse(request: web.Request) -> web.StreamResponse:
    return await _embed(request, bodies.embed_sparse, answers.sparse)


async def _embed(request: web.Request, reader: Reader, shape: Shape) -> web.StreamResponse:
    engine, model = request.app[ENGINE], which.model(request, "tei_embed")
    spec = await calls.known(request, model)
    asked = await request.app[INTAKE].asked(request, reader)
    assert isinstance(asked, bodies.Embedding) and isinstance(asked.options, EncodeOptions)
    asked = replace(asked, options=prompted(asked.options, asked.prompt_name, spec))
    _, made = await calls.of(request, Task.ENCODE, model, asked)
    response = await engine.submit(made)
    said = pieces.listed(shape(made.items, response))
    return await sending.pieced(request, said, Form.JSON, response.model, calls.headers(response))


def prompted(options: EncodeOptions, prompt_name: str | None, spec: ModelSpec) -> EncodeOptions:
    """TEI's clients write prompts themselves unless they name one, so then the entry's stay away.

    Raises InvalidInput for a name that the entry lacks.
    """
    if prompt_name is None:
        plain = "document" in spec.prompts and "instruction" not in spec.prompts
        return replace(options, instruction="") if plain else options
    if prompt_name in spec.loras:
        return replace(options, lora=prompt_name)
    named = [name for name in spec.prompts if name != "instruction"]
    if prompt_name not in named:
        has = f"it has: {', '.join(named)}" if named else "it has none"
        raise InvalidInput(f"{spec.id} has no prompt {prompt_name[:100]!r}; {has}.")
    return replace(options, is_query=prompt_name == "query")
