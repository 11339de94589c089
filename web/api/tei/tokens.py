"""`/tokenize` and `/decode`: what a model's tokenizer makes of texts, and of ids. No weights are loaded."""

from __future__ import annotations

from aiohttp import web

from engine.requests import Task
from web import sending
from web.api import calls
from web.api.tei import which
from web.api.tei.about import ANY
from web.intake import Reader
from web.keys import ENGINE, INTAKE
from web.wire import pieces
from web.wire.forms import Form
from web.wire.tei import answers, bodies


async def tokenize(request: web.Request) -> web.StreamResponse:
    model, asked = await _asked(request, bodies.tokenize)
    texts = tuple(item.text or "" for item in asked.items)
    cut = await request.app[ENGINE].tokenize(model, texts, asked.special)
    return await sending.pieced(request, answers.tokenized(asked.items, cut), Form.JSON, model, {})


async def decode(request: web.Request) -> web.StreamResponse:
    model, asked = await _asked(request, bodies.detokenize)
    ids = tuple(item.tokens or () for item in asked.items)
    spelled = await request.app[ENGINE].spell(model, ids, asked.special)
    return await sending.pieced(request, pieces.listed(spelled), Form.JSON, model, {})


async def _asked(request: web.Request, reader: Reader) -> tuple[str, bodies.Tokenizing]:
    """The model's id, and what it is asked."""
    model = which.model(request, *ANY)
    await calls.known(request, model)
    asked = await request.app[INTAKE].asked(request, reader)
    assert isinstance(asked, bodies.Tokenizing)
    _, made = await calls.of(request, Task.ENCODE, model, asked)
    return f"{made.model}:{made.profile}" if made.profile else made.model, asked
