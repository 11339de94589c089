"""`POST /v1/rerank` and `/v2/rerank`: documents by their worth, for the clients of Cohere and Jina."""

from __future__ import annotations

from aiohttp import web

from engine.requests import Task
from web import sending
from web.api import calls
from web.keys import ENGINE, INTAKE, REQUEST_ID
from web.wire import pieces, rerank
from web.wire.forms import Form


async def v1(request: web.Request) -> web.StreamResponse:
    return await _rerank(request, "1")


async def v2(request: web.Request) -> web.StreamResponse:
    return await _rerank(request, "2")


async def _rerank(request: web.Request, version: str) -> web.StreamResponse:
    asked = await request.app[INTAKE].asked(request, rerank.read)
    assert isinstance(asked, rerank.Reranking)
    _, made = await calls.of(request, Task.SCORE, asked.model, asked)
    response = await request.app[ENGINE].submit(made)
    said = rerank.answer(asked, response, request[REQUEST_ID], version)
    headers = calls.headers(response, Pairs=len(made.items))
    return await sending.pieced(request, pieces.of(said, Form.JSON), Form.JSON, response.model, headers)
