"""Jobs as the published native client sends them: items, or a file of them, become a call each. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from engine.batches.lines import Line
from engine.errors import InvalidInput
from web.errors import NotOffered
from web.wire import free, options
from web.wire.bodies import MAX_OPTIONS_BYTES, GenerateBody
from web.wire.decoding import decode
from web.wire.forms import Form
from web.wire.pieces import json_bytes

UPLOAD = "upload://"
"""What comes before the id of a file, where a job's items stand in one."""

_CONNECTORS = (
    "Connectors (src, sink, connection, plans) belong to a control plane, which this server has none of. "
    "Send items, or upload a file of them and name it in src as upload://, with execution run."
)

_GENERATION = frozenset(GenerateBody.__struct_encode_fields__) - {"prompt", "images", "options", "stream"}
_PARAMS = {
    "encode": ("instruction", "output_dtype"),
    "extract": ("labels", "output_schema", "instruction"),
    "score": ("query", "instruction"),
}
"""By operation, those of the options that stand beside the options in a call's own body."""
_KNOWN: dict[str, type[options.Common]] = {
    "encode": options.EncodeKnown,
    "extract": options.ExtractKnown,
    "score": options.ScoreKnown,
    "generate": options.GenerateKnown,
}


class FieldMap(Struct):
    """Which fields of a file's lines are an item's id and text."""

    id_field: str = "id"
    input_field: str = "text"
    input_type: Literal["text"] = "text"


class JobBody(Struct):
    """`options` hold what the operation needs beside an item: `query`, `labels`, `max_new_tokens`, ...

    Instead of `items`, `src` names a file of them, one a line, as `upload://` and its id; then
    `execution` is `run`.
    """

    operation: Literal["encode", "score", "extract", "generate"]
    model: Annotated[str, Meta(min_length=1)]
    items: list[Raw] | None = None
    output_types: list[str] | None = None
    options: Raw = free.UNSENT
    src: str | None = None
    sink: str | None = None
    connection: str | None = None
    sink_connection: str | None = None
    execution: str | None = None
    field_map: dict[str, Raw] | None = None
    output_field: str | None = None


class _Named(Struct):
    id: str | None = None


class _Prompt(Struct):
    text: str
    id: str | None = None


def check(asked: JobBody, most: int) -> list[Raw] | None:
    """Its items; None where they stand in a file. Raises NotOffered for what needs connectors, and
    InvalidInput for no or too many items."""
    if asked.sink is not None or asked.connection or asked.sink_connection or asked.output_field is not None:
        raise NotOffered(_CONNECTORS)
    if asked.src is not None:
        if not asked.src.startswith(UPLOAD) or asked.execution != "run":
            raise NotOffered(_CONNECTORS)
        if asked.items is not None:
            raise InvalidInput("A job has either items or src.", param="src")
        return None
    if asked.execution is not None or asked.field_map is not None:
        raise InvalidInput("execution and field_map go with src.", param="src")
    if not asked.items:
        raise InvalidInput('A job has items: a list of maps such as {"text": "..."}.', param="items")
    if len(asked.items) > most:
        said = f"A job has at most {most} items (max_items), not {len(asked.items)}; upload a file of them."
        raise InvalidInput(said, param="items")
    return asked.items


def fields(asked: JobBody) -> FieldMap | None:
    """Raises InvalidInput, NotOffered for fields that are carried into a sink."""
    if asked.field_map is None:
        return None
    if free.given(asked.field_map.get("carry", free.ABSENT)):
        raise NotOffered("field_map.carry is for sinks, which are not offered; results have each item's id.")
    return decode(msgspec.json.encode(asked.field_map), Form.JSON, FieldMap, "field_map")


def of_lines(lines: Iterable[bytes], said: FieldMap | None, most: int, most_bytes: int) -> Iterator[Raw]:
    """The items of a file. Raises InvalidInput with the line that is none."""
    count = 0
    for number, line in enumerate(lines, 1):
        if len(line) > most_bytes:
            raise InvalidInput(f"Line {number} has more than {most_bytes} bytes (max_body_bytes).")
        if not line.strip():
            continue
        if (count := count + 1) > most:
            raise InvalidInput(f"A job has at most {most} lines (batch_lines); make several of it.")
        yield Raw(line) if said is None else _mapped(line, said, number)


def _mapped(line: bytes, said: FieldMap, number: int) -> Raw:
    found = decode(line, Form.JSON, dict[str, Raw], f"line {number}")
    text = found.get(said.input_field)
    if text is None:
        raise InvalidInput(f"Line {number} has no {said.input_field[:100]!r} (field_map.input_field).")
    name = found.get(said.id_field)
    return Raw(msgspec.json.encode({"text": text} if name is None else {"id": name, "text": text}))


def calls(asked: JobBody, items: Iterable[Raw]) -> Iterator[bytes]:
    """A line of a batch for each item. Raises InvalidInput for options or an item that are none.

    `custom_id` is the item's index and, behind a colon, its id.
    """
    chosen = free.mapping(asked.options, Form.JSON, "options", MAX_OPTIONS_BYTES)
    _check_names(asked.operation, chosen)
    head = json_bytes({"method": "POST", "url": endpoint(asked)})[:-1]
    writing = asked.operation == "generate"
    tail = _written(_generation(chosen) if writing else _around(asked, chosen))[1:]
    for index, raw in enumerate(items):
        item, where = _item(raw, index), f"items[{index}]"
        if writing:
            prompt = decode(item, Form.JSON, _Prompt, where)
            body, name = b'{"prompt":' + json_bytes(prompt.text), prompt.id
        else:
            body, name = b'{"items":[' + item + b"]", decode(item, Form.JSON, _Named, where).id
        rest = b"," + tail if tail != b"}" else tail
        custom = json_bytes(str(index) if name is None else f"{index}:{name}")
        yield head + b',"custom_id":' + custom + b',"body":' + body + rest + b"}\n"


def _check_names(operation: str, chosen: dict[str, Any]) -> None:
    """Raises InvalidInput for options that nobody knows. Of an extraction further ones go on to the model's
    family: only a misspelt name is refused there."""
    names = {*_KNOWN[operation].__struct_encode_fields__, *_PARAMS.get(operation, _GENERATION)}
    families = operation == "extract"
    strange = sorted(chosen.keys() - names - (options.OF_FAMILIES if families else frozenset()))
    hint = options.meant(strange, names, options.NEAR if families else options.ALIKE)
    if hint or (strange and not families):
        said = f"Unknown options of a job that does {operation}: {', '.join(strange)[:500]}."
        raise InvalidInput(said + hint, param="options")


def body_of(line: bytes) -> bytes:
    """The call's own body, of a line that `calls` made."""
    return bytes(decode(line, Form.JSON, Line).body)


def endpoint(asked: JobBody) -> str:
    return f"/v1/{asked.operation}/{asked.model}"


def digest(body: bytes | bytearray) -> str:
    """Two requests with one are the same."""
    return hashlib.sha256(body).hexdigest()


def _item(raw: Raw, index: int) -> bytes:
    """An item as JSON on one line; a bare text is one too. No values are built of it."""
    try:
        said = msgspec.json.format(bytes(raw), indent=-1)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"items[{index}] cannot be read: {error}.").at(index) from None
    if said.startswith(b'"'):
        return b'{"text":' + said + b"}"
    if not said.startswith(b"{"):
        raise InvalidInput(f'items[{index}] is a map such as {{"text": "..."}}, or a text.').at(index)
    return said


def _written(options: dict[str, Any]) -> bytes:
    """Raises InvalidInput for what was read but cannot be written: reading takes integers of any size."""
    try:
        return json_bytes(options)
    except TypeError as error:
        said = f"options cannot be kept ({error}): integers have at most 64 bits, and text is valid Unicode."
        raise InvalidInput(said, param="options") from None


def _around(asked: JobBody, options: dict[str, Any]) -> dict[str, Any]:
    """What stands in every call's body beside its item."""
    apart = {name: options.pop(name) for name in _PARAMS[asked.operation] if name in options}
    rest = {"options": options} if options else {}
    if asked.operation == "score":
        query = apart.get("query")
        if query is None:
            raise InvalidInput(
                "A score job has options.query, which its items are compared with.", param="options"
            )
        return {**apart, "query": {"text": query} if isinstance(query, str) else query, **rest}
    types = {"output_types": asked.output_types} if asked.output_types and asked.operation == "encode" else {}
    params = {**types, **apart, **rest}
    return {"params": params} if params else {}


def _generation(options: dict[str, Any]) -> dict[str, Any]:
    """Sampling stands beside the prompt."""
    beside = {name: options.pop(name) for name in sorted(_GENERATION & options.keys())}
    return {**beside, **({"options": options} if options else {})}
