"""A model directory's own words, with the catalogue entry's in front of them."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.adapters.forward.weights import BadWeights
from engine.adapters.preparing import directory
from engine.adapters.preparing.routes import QUERY, Directory, Expansion, Route
from engine.catalog import ModelSpec

ONES = "ones"
"""Of `sparse_queries`: every term of a query weighs 1."""


def served(spec: ModelSpec, path: Path) -> Directory:
    """How texts of each role become vectors. Raises BadWeights for what the two together cannot mean."""
    stored = directory.read(path)
    routes = {role: _route(route, spec) for role, route in stored.routes.items()}
    looked_up = spec.options.get("sparse_queries")
    if looked_up:
        weights = None if looked_up == ONES else path / str(looked_up)
        if weights is not None and not weights.is_file():
            raise BadWeights(f"{path} has no {looked_up}, which the entry's sparse_queries names")
        routes[QUERY] = replace(routes[QUERY], looked_up=True, static=weights)
    return Directory(
        routes,
        {**stored.prompts, **spec.prompts},
        {**stored.markers, **spec.options.get("markers", {})},
        spec.options.get("similarity") or stored.similarity,
    )


def roles(spec: ModelSpec) -> Mapping[str, str]:
    """By role, the adapter that reads it where a request names none. Raises BadWeights for one not there."""
    named: Mapping[str, str] = spec.options.get("adapters") or {}
    if missing := sorted({*named.values()} - spec.loras.keys()):
        raise BadWeights(f"the entry's adapters name {', '.join(missing)}, which its loras do not have")
    return named


def _route(route: Route, spec: ModelSpec) -> Route:
    options = spec.options
    given: dict[str, Any] = {
        "pooling": options.get("pooling") or spec.pooling,
        "include_prompt": options.get("include_prompt"),
        "sparse_pooling": options.get("sparse_pooling"),
        "sparse_activation": options.get("sparse_activation"),
        "query_tokens": options.get("query_tokens"),
        "document_tokens": spec.max_tokens,
        "expansion": _expansion(route, options),
        "skipped": _skipped(options),
    }
    changed = replace(route, **{key: value for key, value in given.items() if value is not None})
    return replace(changed, expansion=None) if options.get("expand_queries") is False else changed


def _expansion(route: Route, options: Any) -> Expansion | None:
    stored = route.expansion
    length = options.get("expand_queries") or (stored and stored.length)
    if not length:
        return None
    attend = options.get("attend_to_expansion", stored.attend if stored else False)
    token = options.get("expansion_token", stored.token if stored else None)
    return Expansion(int(length), bool(attend), token)


def _skipped(options: Any) -> tuple[str, ...] | None:
    if (skips := options.get("skip_punctuation")) is None:
        return None
    return tuple(string.punctuation) if skips else ()


def encoders(stored: Directory) -> tuple[Route, ...]:
    """The routes that have a transformer, each transformer once."""
    found: dict[Path, Route] = {}
    for route in stored.routes.values():
        if not route.looked_up:
            found.setdefault(route.path, route)
    return tuple(found.values())
