"""What one item may be: its kind and bytes before it is prepared, its cost after. The entry says all."""

from __future__ import annotations

from engine.adapters.family import Prepared, Preparer
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import EncodeOptions, Item, Options, OutputType, Request, Task


def mismatch(item: Item, spec: ModelSpec, task: Task) -> InvalidInput | None:
    """An item of a kind that the model does not take, or that holds nothing."""
    given = _kinds(item)
    if wrong := [name for name in given if name not in spec.inputs]:
        return InvalidInput(f"{spec.id} takes {', '.join(spec.inputs)}; this item has {', '.join(wrong)}.")
    if not given and item.text is None and task is not Task.GENERATE:
        return InvalidInput(f"This item holds nothing; {spec.id} takes {', '.join(spec.inputs)}.")
    return None


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


def prepare_within(preparer: Preparer, spec: ModelSpec, request: Request) -> list[Prepared | EngineError]:
    """Every item prepared, or what is wrong with it; those that the entry does not take are not tried.

    Raises what `Preparer.prepare` raises, and on encode, score and generate the first wrong item's error.
    """
    items, task = request.items, request.task
    _refuse_other_outputs(spec, request.options)
    wrong = {
        index: error
        for index, item in enumerate(items)
        if (error := mismatch(item, spec, task) or too_large(item, spec))
    }
    if wrong and task is not Task.EXTRACT:
        first = min(wrong)
        raise wrong[first].at(first)
    good = [item for i, item in enumerate(items) if i not in wrong] if wrong else items
    prepared = iter([too_costly(p, spec) for p in preparer.prepare(task, good, request.options)])
    return [wrong[i] if i in wrong else next(prepared) for i in range(len(items))]


def _refuse_other_outputs(spec: ModelSpec, options: Options) -> None:
    """Kinds of vector that the entry does not name; one that names none makes dense ones."""
    if not isinstance(options, EncodeOptions) or not options.output_types:
        return
    makes = spec.outputs or (OutputType.DENSE,)
    if other := [kind.value for kind in options.output_types if kind not in makes]:
        kinds = ", ".join(kind.value for kind in makes)
        raise InvalidInput(f"{spec.id} gives no {', '.join(other)} vectors; output_types: {kinds}.")


def _kinds(item: Item) -> list[str]:
    """What it holds, in the catalogue's words."""
    held = ["text"] if item.text or item.tokens else []
    if item.images:
        held.append("image")
    if item.audio is not None:
        held.append("audio")
    if item.video is not None:
        held.append("video")
    if item.document is not None:
        held.append("document")
    return held


def _text_bytes(text: str, limit: int) -> int:
    """UTF-8 bytes; not counted where even four a character are within the limit."""
    if len(text) * 4 <= limit or len(text) > limit:
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))
