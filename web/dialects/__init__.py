"""In whose form an error is told: the clients of each API read the errors of their own.

A route without a dialect answers in ours (`web/errors.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.errors import EngineError
from web import errors
from web.dialects import cohere, openai, tei

Dialect = Callable[[EngineError, str], tuple[int, Mapping[str, Any]]]
"""An error and the request's id, as a status and a body."""


def both(error: EngineError, request_id: str) -> tuple[int, Mapping[str, Any]]:
    """As ours and as OpenAI's, of whose clients either asks here."""
    return errors.status(error), {**errors.envelope(error, request_id), **openai.body(error)}


_EXACT: Mapping[str, Dialect] = {
    "/v1/rerank": cohere.told,
    "/v2/rerank": cohere.told,
    **dict.fromkeys(openai.PATHS, openai.told),
    **dict.fromkeys(tei.ROOT, tei.told),
}
_BELOW: Mapping[str, Dialect] = {
    "/tei/": tei.told,
    "/v1/models": both,
    **dict.fromkeys(openai.BELOW, openai.told),
}


def of(path: str) -> Dialect | None:
    """The dialect of the route at `path`, which comes without the server's `base_path`."""
    if path in _EXACT:
        return _EXACT[path]
    return next((told for start, told in _BELOW.items() if path.startswith(start)), None)
