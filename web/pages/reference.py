"""`/docs/api`: the reference of every route as a page to read, without a script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import aiohttp_jinja2
from aiohttp import web

from web.api import openapi
from web.keys import ENGINE
from web.openapi.document import REFERENCE
from web.wire.pieces import json_bytes

Schema = Mapping[str, Any]
_KEYWORDS = {
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "to {}",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
    "maxLength": "at most {} characters",
    "pattern": "as {}",
}


async def page(request: web.Request) -> web.Response:
    context = {"base": request.app[ENGINE].settings.base_path, **shown(await openapi.of(request))}
    return aiohttp_jinja2.render_template("reference.html", request, context)


def shown(document: Schema) -> dict[str, Any]:
    """The document in the order and the words of the page."""
    schemas = document["components"]["schemas"]
    routes = [
        {"tag": operation["tags"][0], **_route(path, method, operation)}
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    order = [tag["name"] for tag in document["tags"]]
    routes.sort(key=lambda route: order.index(route["tag"]))
    groups = [{"name": n, "routes": list(found)} for n, found in groupby(routes, lambda route: route["tag"])]
    types = [{"name": name, **_type(schema)} for name, schema in sorted(schemas.items())]
    headers = [(p["name"], _prose(p["description"])) for p in document["components"]["parameters"].values()]
    version = document["info"]["version"]
    return {"version": version, "groups": groups, "types": types, "headers": headers}


def _route(path: str, method: str, operation: Schema) -> dict[str, Any]:
    status, answer = next(iter(operation["responses"].items()))
    inside = [p for p in operation["parameters"] if "$ref" not in p and "description" in p]
    return {
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "summary": _prose(operation["summary"]),
        "variables": [(p["name"], _prose(p["description"])) for p in inside],
        "takes": _contents(operation.get("requestBody", {})),
        "gives": _contents(answer),
        "status": status,
        "needs": operation.get("x-serai-needs", ""),
    }


def _contents(body: Schema) -> dict[str, Any]:
    """Media types, and the type that the first of them holds."""
    content = body.get("content", {})
    schema: Schema = next((held["schema"] for held in content.values()), {})
    return {"forms": list(content), "kind": list(_kind(schema)) if content else []}


def _type(schema: Schema) -> dict[str, Any]:
    words = " or ".join(map(str, schema.get("enum", ())))
    text = " ".join(part for part in (schema.get("description", ""), words and f"One of {words}.") if part)
    return {"text": _prose(text), "fields": list(_fields(schema))}


def _prose(text: str) -> list[tuple[str, bool]]:
    """Parts of a text, and which of them are code."""
    return [(part, bool(place % 2)) for place, part in enumerate(text.split("`")) if part]


def _fields(schema: Schema) -> Iterator[dict[str, Any]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        yield {
            "name": name,
            "kind": list(_kind(field)),
            "required": name in required,
            "default": _default(field, name in required),
            "limits": ", ".join(_limits(field)),
        }


def _default(field: Schema, required: bool) -> str:
    default = field.get("default")
    return "" if required or default is None else json_bytes(default).decode()


def _kind(schema: Schema) -> Iterator[tuple[str, str]]:
    """Words of a type, each with the name of the one that it leads to; empty for none."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REFERENCE)
        yield name.rpartition(".")[2], name
    elif "anyOf" in schema:
        for index, each in enumerate(schema["anyOf"]):
            if index:
                yield "or", ""
            yield from _kind(each)
    elif "enum" in schema:
        yield " ".join(map(str, schema["enum"])), ""
    elif schema.get("type") == "array":
        yield "list of", ""
        yield from _kind(schema.get("items") or {})
    else:
        names = {"object": "map", "string": "text", "boolean": "yes or no"}
        kind = str(schema.get("type", "anything"))
        yield ("base64" if "contentEncoding" in schema else names.get(kind, kind)), ""


def _limits(schema: Schema) -> Iterator[str]:
    for part in (schema, *schema.get("anyOf", ())):
        for keyword, words in _KEYWORDS.items():
            if keyword in part:
                yield words.format(part[keyword])
