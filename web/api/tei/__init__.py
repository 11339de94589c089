"""The routes of text-embeddings-inference: below `/tei/{model}`, and at the root for the settings' models."""

from __future__ import annotations

from aiohttp import web

from web.api.tei import about, embed, rank, tokens

BELOW = "/tei/{model:.+}"

_POSTS = {
    "/embed": embed.embed,
    "/embed_all": embed.embed_all,
    "/embed_sparse": embed.embed_sparse,
    "/rerank": rank.rerank,
    "/predict": rank.predict,
    "/tokenize": tokens.tokenize,
    "/decode": tokens.decode,
}

ROUTES = (
    *(web.post(path, handler) for path, handler in _POSTS.items()),
    web.get("/info", about.info),
    *(web.post(BELOW + path, handler) for path, handler in _POSTS.items()),
    web.get(BELOW + "/info", about.info),
    web.get(BELOW + "/health", about.health),
    web.post(BELOW, about.any_task),
)
"""The one without a name comes last: `{model}` would take the others' names for part of a model's."""
