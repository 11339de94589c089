"""How large one item may be: bytes before it is prepared, cost after. The catalogue entry sets both."""

from __future__ import annotations

from collections.abc import Sequence

from engine.adapters.family import Prepared
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong
from engine.requests import Item


def too_large(item: Item, spec: ModelSpec) -> InputTooLong | None:
    """Bytes of an item beyond the entry's `max_item_bytes`: some tokenizers take forever, or break."""
    limit = spec.limits.max_item_bytes
    if limit is None:
        return None
    media = [*item.images, *(m for m in (item.audio, item.video, item.document) if m)]
    size = max([_text_bytes(item.text or "", limit), *(len(m.data) for m in media)])
    if size <= limit:
        return None
    text = f"The input has {size} bytes; {spec.id} takes {limit} (max_item_bytes). Send it in parts."
    return InputTooLong(text, size=size, limit=limit)


def too_costly(prepared: Prepared | EngineError, spec: ModelSpec) -> Prepared | EngineError:
    """The same, or why it is too much: one item holds its slot to its end, whatever else waits."""
    limit = spec.limits.max_item_cost
    if limit is None or isinstance(prepared, EngineError) or prepared.cost <= limit:
        return prepared
    text = (
        f"The input has a cost of {prepared.cost}; {spec.id} takes {limit} for one (max_item_cost). "
        "Send it in parts."
    )
    return InputTooLong(text, cost=prepared.cost, limit=limit)


def woven(
    items: Sequence[Item], wrong: dict[int, InputTooLong], prepared: Sequence[Prepared | EngineError]
) -> list[Prepared | EngineError]:
    """What is wrong and what was prepared of the others, in the order of the items."""
    others = iter(prepared)
    return [wrong[i] if i in wrong else next(others) for i in range(len(items))]


def _text_bytes(text: str, limit: int) -> int:
    """UTF-8 bytes; not counted where even four a character are within the limit."""
    if len(text) * 4 <= limit or len(text) > limit:
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))
