"""Bytes into a typed body, in either form; and what is wrong with them, said so that it can be mended."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from engine.errors import InvalidInput
from web.wire.forms import Form

T = TypeVar("T")
Body = bytes | bytearray
_ITEM = re.compile(r"items\[(\d+)\]")
_FIELD = re.compile(r"\w+")
LOCATED_BYTES = 2**18
"""Text that is no Unicode is looked for item by item in bodies of so many bytes at most: it takes thirty
times as many, and time."""
MOST_SAID = 300
"""Characters of a complaint: it may quote what was sent."""
_LONE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F])"
)
_NOT_UNICODE = "holds text that is not valid Unicode: a lone surrogate, or bytes that are not UTF-8"


def decode(body: Body, form: Form, kind: type[T], where: str = "") -> T:
    """`body`, or what stands at `where` in it, as a `kind`. Fields that `kind` lacks are never built.

    Raises InvalidInput with the path of the field, and the item's index where it is in an item.
    """
    try:
        if form is Form.JSON:
            return msgspec.json.decode(body, type=kind)
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _misfit(str(error), where, _hint(body, form)) from None
    except RecursionError:
        raise InvalidInput("The body is nested too deeply; send flat items.") from None
    except ValueError as error:
        raise _unreadable(body, form, str(error)) from None


def convert(value: Any, kind: type[T], where: str) -> T:
    """A decoded map as a `kind`; `where` is its place in the body."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _misfit(str(error), where) from None


def _misfit(message: str, root: str = "", hint: str = "") -> InvalidInput:
    """A complaint of msgspec (`Expected x, got y - at path`) in our words."""
    what, at, path = message.rpartition(" - at `")
    what, path = (what, path.removesuffix("`")) if at else (message, "$")
    where = (root + path.rpartition("`")[2].removeprefix("$")).lstrip(".")
    place = where or "The body"
    what = what if len(what) <= MOST_SAID else f"{what[:MOST_SAID]} ..."
    what = what.replace("`", "").replace("object", "map").replace("array", "list")
    said = f"{place}: {what[:1].lower()}{what[1:]}. Mend that and send the request again.{hint}"
    field = _FIELD.match(where)
    error = InvalidInput(said, param=field[0]) if field else InvalidInput(said)
    item = _ITEM.match(place)
    return error.at(int(item[1])) if item else error


def _unreadable(body: Body, form: Form, message: str) -> InvalidInput:
    if not body:
        return InvalidInput("The body is empty; send a JSON or msgpack map.")
    index = _bad_text(body, form)
    if index is None:
        return InvalidInput(f"The body cannot be read as {form}: {message}.{_hint(body, form)}")
    if index < 0:
        return InvalidInput(f"The body {_NOT_UNICODE}.")
    return InvalidInput(f"items[{index}] {_NOT_UNICODE}.").at(index)


def _hint(body: Body, form: Form) -> str:
    if form is Form.JSON and body[0] & 0xF0 == 0x80:
        return f" It looks like msgpack; if it is, send Content-Type: {Form.MSGPACK}."
    if form is Form.MSGPACK and body.lstrip()[:1] == b"{":
        return f" It looks like JSON; if it is, send Content-Type: {Form.JSON}."
    return ""


class _Items(Struct):
    items: Annotated[list[Raw], Meta(max_length=LOCATED_BYTES)] = []


def _bad_text(body: Body, form: Form) -> int | None:
    """The first item with text that is no Unicode; -1 when it is elsewhere, None when there is none."""
    try:
        if form is Form.JSON:
            if len(body) > LOCATED_BYTES:
                return -1 if _LONE.search(body) or not _is_utf8(body) else None
            loose = json.loads(body)  # lets surrogates pass, unlike the strict decoder
            if _is_unicode(loose):
                return None
            items = loose.get("items") if isinstance(loose, dict) else None
            bad = (not _is_unicode(item) for item in (items if isinstance(items, list) else ()))
        else:
            bad = (not _is_readable(raw) for raw in msgspec.msgpack.decode(body, type=_Items).items)
        return next((index for index, is_bad in enumerate(bad) if is_bad), -1)
    except (ValueError, RecursionError):
        return None


def _is_utf8(body: Body) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_unicode(value: object) -> bool:
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return False
    return True


def _is_readable(raw: Raw) -> bool:
    try:
        msgspec.msgpack.decode(raw)
    except ValueError:
        return False
    return True
