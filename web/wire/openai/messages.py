"""The messages of a conversation, from OpenAI's form to the engine's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

from engine.errors import InputTooLong
from engine.requests import Item, Media
from web.wire import free
from web.wire.bodies import MAX_IMAGES
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.openai import pictures
from web.wire.openai.complaints import wrong
from web.wire.openai.pictures import ImageUrl

ROLES = ("system", "developer", "user", "assistant", "tool")
TEXT = ("text", "input_text", "output_text")
MAX_CALLS = 128


class Part(Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | str | None = None


class FunctionCall(Struct):
    name: str
    arguments: str = ""


class ToolCall(Struct):
    function: FunctionCall
    id: str = ""
    type: str = "function"


class Message(Struct):
    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Annotated[list[ToolCall], Meta(max_length=MAX_CALLS)] | None = None


Messages = Annotated[list[Message], Meta(max_length=2**14)]


def turns(
    messages: Sequence[Message], limits: Limits, name: str
) -> tuple[tuple[Mapping[str, Any], ...], Item]:
    """The turns, and an item with their images in order.

    `name` is the list's in complaints. Raises InvalidInput naming the message that is wrong.
    """
    if not messages:
        raise wrong(name, f"{name} is empty; send at least one.")
    images: list[Media] = []
    made = tuple(_turn(message, f"{name}[{at}]", name, limits, images) for at, message in enumerate(messages))
    size = sum(len(text.encode()) for turn in made for text in _texts(turn["content"]))
    if size > limits.item_text_bytes:
        raise InputTooLong(
            f"{name} has {size} bytes of text; at most {limits.item_text_bytes} are taken "
            "(max_item_text_bytes).",
            param=name,
        )
    return made, Item(images=tuple(images))


def _texts(content: str | list[dict[str, str]]) -> list[str]:
    return [content] if isinstance(content, str) else [part.get("text", "") for part in content]


def _turn(message: Message, where: str, name: str, limits: Limits, images: list[Media]) -> Mapping[str, Any]:
    if message.role not in ROLES:
        said = f"{where}.role is {message.role[:100]!r}; it is one of {', '.join(ROLES)}."
        raise wrong(name, said)
    calls = [
        _call(call, f"{where}.tool_calls[{at}]", limits) for at, call in enumerate(message.tool_calls or ())
    ]
    if message.content is None and not calls:
        raise wrong(name, f"{where}.content is missing; send text.")
    content = (
        message.content
        if isinstance(message.content, str)
        else _content(message.content or (), where, name, images)
    )
    turn: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": content,
    }
    beside = {"name": message.name, "tool_call_id": message.tool_call_id, "tool_calls": calls}
    return {**turn, **{key: value for key, value in beside.items() if value}}


def _content(parts: Iterable[Part], where: str, name: str, images: list[Media]) -> str | list[dict[str, str]]:
    """Text, or texts and places of images where there are any; these go to `images`."""
    found: list[dict[str, str]] = []
    before = len(images)
    for at, part in enumerate(parts):
        if part.type in pictures.SHOWN:
            if len(images) == MAX_IMAGES:
                raise pictures.too_many(name)
            images.append(pictures.read(part.image_url, f"{where}.content[{at}]", name))
            found.append({"type": "image"})
            continue
        text = part.refusal if part.type == "refusal" else part.text
        if part.type not in (*TEXT, "refusal") or text is None:
            raise wrong(
                name,
                f"{where}.content[{at}] is of type {part.type[:100]!r}; models that write read text and some "
                "read images. Have documents and recordings read by POST /v1/extract/{model}, and send the "
                "text.",
            )
        found.append({"type": "text", "text": text})
    return found if len(images) > before else "".join(part["text"] for part in found)


def _call(call: ToolCall, where: str, limits: Limits) -> dict[str, Any]:
    """Templates write arguments as JSON themselves: they are given as values."""
    written = Raw((call.function.arguments or "{}").encode())
    arguments = free.mapping(written, Form.JSON, f"{where}.function.arguments", limits.item_text_bytes)
    function = {"name": call.function.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}
