"""What is read: a text, a list of texts, the token ids of one, or a list of those."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import Meta, Raw

from engine.errors import InvalidInput
from engine.requests import Item
from web.wire import texts
from web.wire.decoding import decode
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.openai.complaints import wrong

Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_START = re.compile(rb'\s*(?:(?P<text>")|\[\s*(?P<first>.))', re.DOTALL)
_KINDS: dict[bytes, Any] = {b'"': list[str], b"[": list[list[Token]]}


def items(raw: Raw, form: Form, limits: Limits, name: str) -> tuple[Item, ...]:
    """One item of a text or its token ids, or several of a list; `name` is the field's in complaints."""
    written = bytes(raw)
    start = _START.match(written)
    if start is None:
        raise wrong(name, f"{name} must be a text, a list of texts, token ids, or a list of those.")
    if start["text"]:
        return (texts.item(decode(written, form, str, name), limits, name),)
    kind: Any = _KINDS.get(start["first"], list[Token])
    if kind == list[list[Token]] and written.count(b"[") > limits.items + 1:
        raise _too_many(written.count(b"[") - 1, limits, name)  # a list takes thirty times its bytes
    found: Any = decode(written, form, kind, name)
    if not found:
        raise wrong(name, f"{name} is empty; send at least one.")
    if kind == list[Token]:
        return (Item(tokens=tuple(found)),)
    if len(found) > limits.items:
        raise _too_many(len(found), limits, name)
    if kind == list[str]:
        return texts.items(found, limits, name)
    for index, tokens in enumerate(found):
        if not tokens:
            raise wrong(name, f"{name}[{index}] is empty; send at least one token.").at(index)
    return tuple(Item(tokens=tuple(tokens)) for tokens in found)


def _too_many(count: int, limits: Limits, name: str) -> InvalidInput:
    said = f"{name} has {count} entries; at most {limits.items} are taken in a request (max_items)."
    return wrong(name, said)
