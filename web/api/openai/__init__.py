"""The routes of OpenAI's API, over the same engine messages as ours."""

from __future__ import annotations

from aiohttp import web

from web.api.openai import chat, completions, embeddings, responses

ROUTES = (
    web.post("/v1/embeddings", embeddings.embeddings),
    web.post("/v1/chat/completions", chat.chat),
    web.post("/v1/completions", completions.completions),
    web.post("/v1/responses", responses.responses),
)
