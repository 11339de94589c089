"""Which reader takes the body of a call that is named by its path, as in `/v1/estimate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.errors import InvalidInput
from engine.requests import Task
from web.wire import bodies, rerank
from web.wire.bodies import Asked
from web.wire.decoding import Body
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.openai import chat, completions, embeddings, responses

Reader = Callable[[Body, Form, Limits], Asked]

NATIVE: Mapping[Task, Reader] = {
    Task.ENCODE: bodies.encode,
    Task.SCORE: bodies.score,
    Task.EXTRACT: bodies.extract,
    Task.GENERATE: bodies.generate,
}
"""Their model stands in the path, `/v1/{task}/{model}`."""

NAMING: Mapping[str, tuple[Task, Callable[[Body, Form, Limits], Asked]]] = {
    "/v1/rerank": (Task.SCORE, rerank.read),
    "/v2/rerank": (Task.SCORE, rerank.read),
    "/v1/embeddings": (Task.ENCODE, embeddings.read),
    "/v1/chat/completions": (Task.GENERATE, chat.read),
    "/v1/completions": (Task.GENERATE, completions.read),
    "/v1/responses": (Task.GENERATE, responses.read),
}
"""Their model stands in the body: what their readers give has a `model`."""


def of(endpoint: str) -> tuple[Task, str, Reader]:
    """The task, the model where the path names it, and the reader. Raises InvalidInput for other paths."""
    if endpoint in NAMING:
        task, reader = NAMING[endpoint]
        return task, "", reader
    for known, reader in NATIVE.items():
        start = f"/v1/{known}/"
        if endpoint.startswith(start) and len(endpoint) > len(start):
            return known, endpoint.removeprefix(start), reader
    native = ", ".join(f"/v1/{known}/{{model}}" for known in NATIVE)
    raise InvalidInput(f"endpoint is {endpoint[:200]!r}; it is one of {native}, {', '.join(NAMING)}.")
