"""What an answer must be: a JSON schema or a regular expression, from a body to the engine's grammar."""

from __future__ import annotations

import json
from typing import Annotated

from msgspec import Meta, Raw, Struct

from engine.errors import InvalidInput
from engine.requests import Grammar
from web.wire import free
from web.wire.forms import Form

MAX_SCHEMA_BYTES = 2**16
KINDS = ("json_schema", "regex")
"""What is offered, as `GET /v1/models` tells it."""


class GrammarBody(Struct):
    """One of the first two. The others are hints for other servers; they change nothing."""

    json_schema: Raw = free.UNSENT
    regex: Annotated[str, Meta(max_length=4096)] | None = None
    ebnf: str | None = None
    label: str | None = None
    strict: bool | None = None


def of(body: GrammarBody | None, form: Form) -> Grammar | None:
    if body is None:
        return None
    if body.ebnf is not None:
        raise InvalidInput("grammar.ebnf is not offered here; send json_schema or regex.")
    if free.given(body.json_schema) == (body.regex is not None):
        raise InvalidInput("grammar holds one of json_schema and regex.")
    if body.regex is not None:
        return Grammar("regex", body.regex)
    return schema(body.json_schema, form, "grammar.json_schema")


def schema(raw: Raw, form: Form, where: str) -> Grammar:
    """Any object where none was sent."""
    found = free.mapping(raw, form, where, MAX_SCHEMA_BYTES)
    return Grammar("json_schema", json.dumps(found)) if found else json_object()


def json_object() -> Grammar:
    return Grammar("json_schema", '{"type": "object"}')
