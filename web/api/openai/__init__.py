"""The routes of OpenAI's API, over the same engine messages as ours."""

from __future__ import annotations

from aiohttp import web

from web.api.openai import audio, batches, chat, completions, embeddings, files, responses

ROUTES = (
    web.post("/v1/embeddings", embeddings.embeddings),
    web.post("/v1/chat/completions", chat.chat),
    web.post("/v1/completions", completions.completions),
    web.post("/v1/responses", responses.responses),
    web.post("/v1/audio/transcriptions", audio.transcriptions),
    web.post("/v1/audio/translations", audio.translations),
    web.post("/v1/files", files.create),
    web.get("/v1/files", files.list_files),
    web.get("/v1/files/{file}", files.show),
    web.get("/v1/files/{file}/content", files.content),
    web.delete("/v1/files/{file}", files.delete),
    web.post("/v1/batches", batches.create),
    web.get("/v1/batches", batches.list_batches),
    web.get("/v1/batches/{batch}", batches.show),
    web.post("/v1/batches/{batch}/cancel", batches.cancel),
)
