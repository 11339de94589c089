"""Lists of plain texts, as the routes of other APIs send them, and the engine's items in their place."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import InputTooLong, InvalidInput
from engine.requests import Item
from web.wire.forms import Form
from web.wire.items import Limits


def only_json(form: Form) -> None:
    """Raises InvalidInput: other APIs know no msgpack."""
    if form is not Form.JSON:
        raise InvalidInput(f"This route takes JSON only; send Content-Type: {Form.JSON}.")


def items(texts: Sequence[str], limits: Limits, name: str) -> tuple[Item, ...]:
    """One item a text; `name` is the list's in complaints. How many there are is for the caller to check."""
    return tuple(item(text, limits, f"{name}[{index}]", index) for index, text in enumerate(texts))


def item(text: str, limits: Limits, where: str, index: int | None = None) -> Item:
    """Raises InputTooLong when the text has more bytes than one may."""
    size = len(text.encode()) if len(text) * 4 > limits.item_text_bytes else 0
    if size > limits.item_text_bytes:
        raise InputTooLong(
            f"{where} has {size} bytes; at most {limits.item_text_bytes} are taken (max_item_text_bytes). "
            "Cut it into several.",
            item=index,
        )
    return Item(text=text)
