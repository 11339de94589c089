"""Whole request bodies: from bytes to the items and options that the engine takes. Pure.

Each reader is a plain function of plain values, so that it can run in a child process as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta, Raw, Struct

from engine.errors import ImageTooLarge, InputTooLong, InvalidInput
from engine.requests import GenerateOptions, Item, Options, ServiceClass
from web.wire import free, grammars, options
from web.wire.decoding import Body, decode
from web.wire.forms import Form
from web.wire.grammars import GrammarBody
from web.wire.items import ItemBody, Limits, MediaBody, items

MAX_OPTIONS_BYTES = 2**18
MAX_IMAGES, MAX_IMAGE_BYTES = 16, 16 * 2**20
MAX_STOPS = 64

# Msgpack says how long a list is before it comes: this bounds what is built for it.
Items = Annotated[list[ItemBody], Meta(max_length=2**18)]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a body asks for, whichever the form it came in."""

    items: tuple[Item, ...]
    options: Options
    profile: str | None = None
    service_class: ServiceClass | None = None
    stream: bool = False
    lora: str | None = None
    """An adapter that reads it where the model has one of that name: what Jina's clients call a task."""


ADAPTER_FIELDS = ("lora_id", "lora_adapter")


class EncodeParams(Struct):
    output_types: list[str] | None = None
    instruction: str | None = None
    output_dtype: str | None = None
    options: Raw = free.UNSENT


class EncodeBody(Struct):
    items: Items
    params: EncodeParams | None = None


class ScoreBody(Struct):
    query: ItemBody
    items: Items
    instruction: str | None = None
    options: Raw = free.UNSENT


class ExtractParams(Struct):
    labels: list[str] | None = None
    output_schema: Raw = free.UNSENT
    instruction: str | None = None
    options: Raw = free.UNSENT


class ExtractBody(Struct):
    items: Items
    params: ExtractParams | None = None


class GenerateBody(Struct):
    """The last three are hints for other servers; they are taken and change nothing."""

    prompt: str
    max_new_tokens: Annotated[int, Meta(ge=1, le=2**20)] | None = None
    images: list[MediaBody] | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    logit_bias: dict[str, float] | None = None
    grammar: GrammarBody | None = None
    lora_adapter: Annotated[str, Meta(min_length=1)] | None = None
    stream: bool | None = None
    options: Raw = free.UNSENT
    routing_key: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None


def encode(body: Body, form: Form, limits: Limits) -> Asked:
    read = decode(body, form, EncodeBody)
    adapter_elsewhere(body, form, "params.options.lora_id")
    params = read.params or EncodeParams()
    given = options.known(_options(params.options, form), options.EncodeKnown)
    chosen = options.encode(given, params.output_types, params.instruction, params.output_dtype)
    return _asked(items(read.items, form, limits), chosen, given)


def score(body: Body, form: Form, limits: Limits) -> Asked:
    read = decode(body, form, ScoreBody)
    adapter_elsewhere(body, form, "options.lora_id")
    given = options.known(_options(read.options, form), options.ScoreKnown)
    query = read.query.item(form, limits, "query")
    return _asked(items(read.items, form, limits), options.score(given, query, read.instruction), given)


def extract(body: Body, form: Form, limits: Limits) -> Asked:
    read = decode(body, form, ExtractBody)
    adapter_elsewhere(body, form, "params.options.lora_id")
    params = read.params or ExtractParams()
    raw = _options(params.options, form)
    given = options.known(raw, options.ExtractKnown)
    schema = free.mapping(params.output_schema, form, "output_schema", MAX_OPTIONS_BYTES)
    chosen = options.extract(raw, given, params.labels, schema, params.instruction)
    return _asked(items(read.items, form, limits), chosen, given)


def generate(body: Body, form: Form, limits: Limits) -> Asked:
    """Unlike elsewhere a field that is not known is refused: ignored, it would change the text."""
    if form is not Form.JSON:
        raise InvalidInput(f"This route takes JSON only; send Content-Type: {Form.JSON}.")
    fields = decode(body, form, dict[str, Raw])
    known = {*GenerateBody.__struct_encode_fields__}
    if strange := sorted(name for name in fields if name not in known and free.given(fields[name])):
        said = f"Unsupported fields: {', '.join(strange)[:500]}. Leave them out."
        raise InvalidInput(said + options.meant(strange, known))
    read = decode(body, form, GenerateBody)
    adapter_elsewhere(body, form, "lora_adapter", "options.lora_id")
    given = options.known(_options(read.options, form), options.GenerateKnown)
    size = len(read.prompt.encode())
    if size > limits.item_text_bytes:
        most = limits.item_text_bytes
        raise InputTooLong(f"prompt has {size} bytes; at most {most} are taken (max_item_text_bytes).")
    item = Item(text=read.prompt, images=tuple(image.media() for image in _images(read)))
    if read.lora_adapter and given.lora_id and read.lora_adapter != given.lora_id:
        raise InvalidInput("lora_adapter and options.lora_id name two adapters; name one.")
    chosen = replace(_generation(read, given.raw), lora=read.lora_adapter or given.lora_id)
    return _asked((item,), chosen, given, stream=bool(read.stream))


def adapter_elsewhere(body: Body, form: Form, *belongs: str) -> None:
    """Fields that nobody reads are ignored, but not an adapter's name: another model would answer.

    `belongs` are the places where the route reads it. Raises InvalidInput that names the first.
    """
    if b"lora_" not in body:
        return
    top = _map(body, form)
    params = _map(top.get("params"), form)
    places = {"": top, "options.": _map(top.get("options"), form), "params.": params}
    places["params.options."] = _map(params.get("options"), form)
    for where, fields in places.items():
        for name in ADAPTER_FIELDS:
            if where + name not in belongs and free.given(fields.get(name, free.ABSENT)):
                said = f"{where}{name} is not read here: name the adapter in {belongs[0]}"
                raise InvalidInput(f"{said}, or in the model's name, as in model:adapter.", param=name)


def _map(found: Body | Raw | None, form: Form) -> dict[str, Raw]:
    """Nothing where it is none."""
    try:
        return decode(bytes(found), form, dict[str, Raw]) if found else {}
    except InvalidInput:
        return {}


def _asked(found: tuple[Item, ...], chosen: Options, given: options.Common, *, stream: bool = False) -> Asked:
    said = options.service_class(given.service_class, "options.class")
    return Asked(found, chosen, given.profile, said, stream)


def _options(raw: Raw, form: Form) -> dict[str, object]:
    return free.mapping(raw, form, "options", MAX_OPTIONS_BYTES)


def _images(read: GenerateBody) -> list[MediaBody]:
    images = read.images or []
    if len(images) > MAX_IMAGES:
        raise InvalidInput(f"images has {len(images)} entries; at most {MAX_IMAGES} are taken.")
    for index, image in enumerate(images):
        check_image(len(image.data), f"images[{index}]")
    return images


def check_image(size: int, where: str, param: str = "images") -> None:
    """Of an image that a text is written about. `param` is its field. Raises ImageTooLarge."""
    if size > MAX_IMAGE_BYTES:
        said = f"{where} is an image of {size} bytes; at most {MAX_IMAGE_BYTES} are taken. Send it smaller."
        raise ImageTooLarge(said, length=size, max_length=MAX_IMAGE_BYTES, param=param)


def _generation(read: GenerateBody, raw: bool) -> GenerateOptions:
    stop = [read.stop] if isinstance(read.stop, str) else read.stop or []
    if len(stop) > MAX_STOPS or not all(stop):
        raise InvalidInput(f"stop has {len(stop)} texts; it is at most {MAX_STOPS}, none of them empty.")
    default = GenerateOptions()

    def chosen(name: str, least: float, most: float) -> float:
        value = getattr(read, name)
        return options.within(getattr(default, name) if value is None else value, least, most, name)

    return GenerateOptions(
        max_new_tokens=read.max_new_tokens or default.max_new_tokens,
        temperature=chosen("temperature", 0, 100),
        top_p=chosen("top_p", 1e-6, 1),
        stop=tuple(stop),
        seed=read.seed,
        frequency_penalty=chosen("frequency_penalty", -2, 2),
        presence_penalty=chosen("presence_penalty", -2, 2),
        logit_bias=_bias(read.logit_bias or {}),
        raw=raw,
        grammar=grammars.of(read.grammar, Form.JSON),
    )


def _bias(given: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token): options.within(bias, -100, 100, "logit_bias") for token, bias in given.items()}
    except ValueError:
        raise InvalidInput("logit_bias maps token ids, written as whole numbers, to numbers.") from None
