"""The reference of a set of routes, OpenAPI 3.1. Pure: the same routes give the same document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from engine.access.principals import Action
from web import dialects
from web.access import routes as access
from web.dialects import cohere, openai, tei
from web.openapi.operations import HTML, OPERATIONS, RAW, Operation
from web.openapi.routes import Route
from web.wire import described, options

REFERENCE = "#/components/schemas/"
ERRORS: Mapping[Any, type] = {
    None: described.ErrorAnswer,
    cohere.told: described.CohereError,
    dialects.both: described.BothErrors,
    openai.told: described.OpenAIError,
    tei.told: described.TeiError,
}
"""In whose form the errors of a route are told."""

TAGS = {
    "/v1/admin": "Administration",
    "/v1/models": "Models",
    "/v1/pools": "Pools",
    "/v1/rerank": "Cohere and Jina",
    "/v2/": "Cohere and Jina",
    **dict.fromkeys(openai.PATHS, "OpenAI"),
    **dict.fromkeys(openai.BELOW, "Files and batches"),
    "/tei/": "TEI",
    **dict.fromkeys(tei.ROOT, "TEI"),
    "/v1/": "Native",
}
OTHER = "Server"
ORDER = (
    "Native",
    "Models",
    "OpenAI",
    "Cohere and Jina",
    "TEI",
    "Files and batches",
    "Pools",
    OTHER,
    "Administration",
)

CALLER = {
    "X-Serai-Class": "`interactive`, `standard` or `background`",
    "X-Serai-Deadline-Ms": "how many milliseconds the caller waits from now",
    "X-Serai-Session": "groups the calls of one pipeline; kept as a keyed hash only",
    "X-Request-ID": "used in logs and answers in place of one of ours",
}
"""Headers that a call may have."""

VARIABLES = {
    "model": "a model's id, slash included: `org/name`. `org__name`, an alias and `org/name:profile` do too",
}


@lru_cache(maxsize=4)
def document(routes: tuple[Route, ...], version: str, base_path: str) -> dict[str, Any]:
    schemas = Schemas([part for route in routes for part in _types(route)])
    routes = tuple(sorted(routes, key=lambda route: ORDER.index(tag(route))))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Serai",
            "version": version,
            "summary": "Many small models, one card, one server, one API, one queue.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": base_path or "/"}],
        "tags": [{"name": name} for name in dict.fromkeys(tag(route) for route in routes)],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "parameters": {name: _header(name, text) for name, text in CALLER.items()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key."}},
        },
    }


class Schemas:
    """The JSON schemas of types; those of structs are components."""

    def __init__(self, kinds: Iterable[Any]) -> None:
        values = list(RAW.values())
        self._kinds = list(dict.fromkeys([*kinds, *(kind for kind in values if kind), *(k for k, _ in RAW)]))
        found, self.components = msgspec.json.schema_components(
            self._kinds, ref_template=REFERENCE + "{name}"
        )
        self._found = dict(zip(self._kinds, found, strict=True))
        for (kind, field), inner in RAW.items():
            properties = self._component(kind)["properties"]
            properties[field] = self._found[inner] if inner else {"type": "object"}
        for kind in filter(None, values):
            known = self._component(kind)["properties"]
            for name in known.keys() & {*options.REFUSED}:
                del known[name]

    def of(self, kinds: Any) -> dict[str, Any]:
        """Of one type, or of any of a tuple."""
        alike = [self._found[kind] for kind in _each(kinds)]
        return alike[0] if len(alike) == 1 else {"anyOf": alike}

    def _component(self, kind: type) -> dict[str, Any]:
        component: dict[str, Any] = self.components[self._found[kind]["$ref"].removeprefix(REFERENCE)]
        return component


def tag(route: Route) -> str:
    return next((name for start, name in TAGS.items() if route.path.startswith(start)), OTHER)


def of(route: Route) -> Operation:
    """Pages of people are not described one by one: what their handlers say of themselves is enough."""
    return OPERATIONS.get(route.name) or Operation(" ".join(route.text.split()), answers=(HTML,))


def _types(route: Route) -> list[Any]:
    operation = of(route)
    told = [ERRORS[dialects.of(route.path)]]
    return [*_each(operation.takes), *_each(operation.gives), *told]


def _each(kinds: Any) -> Sequence[Any]:
    if kinds is None:
        return ()
    return kinds if isinstance(kinds, tuple) else (kinds,)


def _operation(route: Route, schemas: Schemas) -> dict[str, Any]:
    operation = of(route)
    made: dict[str, Any] = {
        "operationId": _id(route),
        "summary": operation.says,
        "tags": [tag(route)],
        "parameters": _parameters(route, operation),
        "responses": _responses(route, operation, schemas),
        **_security(route),
    }
    if operation.takes is not None:
        content = {form: {"schema": schemas.of(operation.takes)} for form in operation.forms}
        made["requestBody"] = {"required": not operation.optional, "content": content}
    return made


def _id(route: Route) -> str:
    words = "".join(letter if letter.isalnum() else " " for letter in route.path).split()
    return "_".join([route.method.lower(), *words])


def _parameters(route: Route, operation: Operation) -> list[dict[str, Any]]:
    inside = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string"},
            **({"description": VARIABLES[name]} if name in VARIABLES else {}),
        }
        for name in route.variables
    ]
    asked = [
        {"name": name, "in": "query", "schema": {"type": "string"}, "description": text}
        for name, text in operation.query.items()
    ]
    calls = access.NEEDS.get(route.name) is Action.CALL
    return [*inside, *asked, *({"$ref": f"#/components/parameters/{name}"} for name in CALLER if calls)]


def _header(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "schema": {"type": "string"}, "description": text}


def _responses(route: Route, operation: Operation, schemas: Schemas) -> dict[str, Any]:
    given: dict[str, Any] = {"description": "As asked."}
    if operation.gives is not None:
        plain = {"type": "string"}
        given["content"] = {
            form: {"schema": schemas.of(operation.gives) if "json" in form or "msgpack" in form else plain}
            for form in operation.answers
        }
    wrong = {"application/json": {"schema": schemas.of(ERRORS[dialects.of(route.path)])}}
    error = {
        "description": "Why not. `X-SIE-Error-Code` has the code; `Retry-After` when to come again.",
        "content": wrong,
    }
    return {str(operation.status): given, "default": error}


def _security(route: Route) -> dict[str, Any]:
    """Keys are asked for once there is one; without any, everybody on the machine may come."""
    if route.name in access.OPEN:
        return {"security": []}
    needed = access.NEEDS.get(route.name, Action.ADMINISTER)
    return {"security": [{"key": []}, {}], "x-serai-needs": needed.value}
