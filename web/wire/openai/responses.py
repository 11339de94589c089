"""`/v1/responses`, as far as it is text: what its bodies ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Raw, Struct

from engine.requests import GenerateOptions, Grammar, Item
from web.wire import free, grammars, options, texts
from web.wire.bodies import adapter_elsewhere
from web.wire.decoding import Body, decode
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.openai import messages, sampling
from web.wire.openai.complaints import wrong
from web.wire.openai.sampling import DEFAULT_TOKENS, Sampled, Tokens, Writing

_REFUSED = {
    "previous_response_id": "answers are not kept here; send the whole conversation in input",
    "conversation": "conversations are not kept here; send the whole of it in input",
    "prompt": "prompt templates are not kept here; send instructions and input",
    "background": "answers are not kept here; wait for this one, or stream it",
    "top_logprobs": "chances of tokens are told by /v1/chat/completions",
}
LOGPROBS = "message.output_text.logprobs"


class Format(Struct):
    type: str
    schema: Raw = free.UNSENT


class Text(Struct):
    format: Format | None = None


class ResponsesBody(Sampled, kw_only=True):
    input: str | messages.Messages
    instructions: str | None = None
    max_output_tokens: Tokens | None = None
    text: Text | None = None
    tools: list[Raw] | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Responding(Writing):
    """With what the answer repeats of the question."""

    instructions: str | None = None
    text_format: str = "text"

    @property
    def sampled(self) -> GenerateOptions:
        assert isinstance(self.options, GenerateOptions)
        return self.options


def read(body: Body, form: Form, limits: Limits) -> Responding:
    texts.only_json(form)
    asked = decode(body, form, ResponsesBody)
    adapter_elsewhere(body, form, "lora_adapter")
    for name, reason in _REFUSED.items():
        if getattr(asked, name):
            raise wrong(name, f"{name} is not offered: {reason}.")
    if LOGPROBS in (asked.include or ()):
        raise wrong("include", f"{LOGPROBS} is not offered: {_REFUSED['top_logprobs']}.")
    if asked.tools:
        raise wrong("tools", "tools are offered on /v1/chat/completions only.")
    kind, grammar = _format(asked.text, form)
    conversation, item = _turns(asked, limits)
    chosen = sampling.chosen(
        asked,
        asked.max_output_tokens or DEFAULT_TOKENS,
        messages=conversation,
        grammar=grammar,
    )
    return Responding(
        (item,),
        chosen,
        service_class=sampling.tier(asked),
        stream=bool(asked.stream),
        model=asked.model,
        instructions=asked.instructions,
        text_format=kind,
    )


def _turns(asked: ResponsesBody, limits: Limits) -> tuple[tuple[Mapping[str, Any], ...], Item]:
    given = asked.input
    if isinstance(given, str):
        given = [messages.Message("user", given)]
    made, item = messages.turns(given, limits, "input")
    told = texts.item(asked.instructions or "", limits, "instructions").text
    return (({"role": "system", "content": told}, *made) if told else made), item


def _format(text: Text | None, form: Form) -> tuple[str, Grammar | None]:
    asked = text.format if text else None
    if asked is None:
        return "text", None
    kind = options.one_of(asked.type, ("text", "json_object", "json_schema"), "text.format.type")
    if kind == "text":
        return kind, None
    if kind == "json_object":
        return kind, grammars.json_object()
    return kind, grammars.schema(asked.schema, form, "text.format.schema")
