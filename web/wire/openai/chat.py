"""`/v1/chat/completions`: what its bodies ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Raw, Struct

from engine.requests import Grammar
from web.wire import free, grammars, options, texts
from web.wire.bodies import adapter_elsewhere
from web.wire.decoding import Body, decode
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.openai import sampling
from web.wire.openai.complaints import wrong
from web.wire.openai.messages import Messages, turns
from web.wire.openai.sampling import DEFAULT_TOKENS, Sampled, Tokens, Writing
from web.wire.openai.tools import Choice, Tool, offered


class JsonSchema(Struct):
    """A name and a description are for people; schemas are followed strictly in any case."""

    schema: Raw = free.UNSENT


class ResponseFormat(Struct):
    type: str
    json_schema: JsonSchema | None = None


class ChatBody(Sampled, kw_only=True):
    messages: Messages
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: str | Choice | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    modalities: list[str] | None = None
    functions: Raw = free.UNSENT
    function_call: Raw = free.UNSENT
    audio: Raw = free.UNSENT
    web_search_options: Raw = free.UNSENT


@dataclass(frozen=True, slots=True)
class Chat(Writing):
    functions: tuple[str, ...] = ()
    """Those that the answer may call."""


def read(body: Body, form: Form, limits: Limits) -> Chat:
    texts.only_json(form)
    asked = decode(body, form, ChatBody)
    adapter_elsewhere(body, form, "lora_adapter")
    _refuse(asked)
    conversation, item = turns(asked.messages, limits, "messages")
    functions = offered(asked.tools, asked.tool_choice, form)
    chosen = sampling.chosen(
        asked,
        asked.max_completion_tokens or asked.max_tokens or DEFAULT_TOKENS,
        messages=conversation,
        tools=functions.tools,
        grammar=functions.grammar(_format(asked.response_format, form)),
        top_logprobs=(asked.top_logprobs or 0) if asked.logprobs else None,
    )
    return Chat(
        (item,),
        chosen,
        service_class=sampling.tier(asked),
        stream=bool(asked.stream),
        model=asked.model,
        include_usage=sampling.usage_wanted(asked),
        functions=functions.names,
    )


def _refuse(asked: ChatBody) -> None:
    """What would change the answer and is not offered."""
    if asked.top_logprobs is not None and not asked.logprobs:
        raise wrong("top_logprobs", "top_logprobs needs logprobs to be true.")
    for name in ("functions", "function_call"):
        if free.given(getattr(asked, name)):
            raise wrong(name, f"{name} is no longer offered; send tools and tool_choice instead.")
    for name in ("audio", "web_search_options"):
        if free.given(getattr(asked, name)):
            raise wrong(name, f"{name} is not offered here; leave it out.")
    if set(asked.modalities or ()) - {"text"}:
        raise wrong("modalities", "modalities may be ['text'] only.")


def _format(asked: ResponseFormat | None, form: Form) -> Grammar | None:
    if asked is None:
        return None
    kinds = ("text", "json_object", "json_schema")
    kind = options.one_of(asked.type, kinds, "response_format.type")
    if kind == "text":
        return None
    if kind == "json_object":
        return grammars.json_object()
    if asked.json_schema is None:
        raise wrong("response_format", "response_format.json_schema is missing.")
    return grammars.schema(asked.json_schema.schema, form, "response_format.json_schema.schema")
