"""`/v1/completions`: prompts as they are, without a chat template, and the text that follows each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Raw

from engine.chosen import Chosen
from engine.errors import EngineError
from engine.requests import Delta, Generated, Response
from web.dialects import openai
from web.wire import answers, texts
from web.wire.bodies import adapter_elsewhere
from web.wire.decoding import Body, decode
from web.wire.forms import Form
from web.wire.items import Limits
from web.wire.openai import inputs, logprobs, sampling
from web.wire.openai.complaints import wrong
from web.wire.openai.events import DONE, event
from web.wire.openai.sampling import Sampled, Tokens, Writing

MAX_PROMPTS = 128
DEFAULT_TOKENS = 16
"""As OpenAI's."""


class CompletionBody(Sampled, kw_only=True):
    prompt: Raw
    max_tokens: Tokens | None = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    best_of: int | None = None
    echo: bool | None = None
    suffix: str | None = None


def read(body: Body, form: Form, limits: Limits) -> Writing:
    texts.only_json(form)
    asked = decode(body, form, CompletionBody)
    adapter_elsewhere(body, form, "lora_adapter")
    prompts = inputs.items(asked.prompt, form, limits, "prompt")
    if len(prompts) > MAX_PROMPTS:
        raise wrong("prompt", f"prompt has {len(prompts)} entries; at most {MAX_PROMPTS} are taken.")
    if asked.stream and len(prompts) > 1:
        raise wrong("prompt", "prompt has several entries; a stream is of one. Send a request for each.")
    for name, unset in (("best_of", (None, 1)), ("echo", (None, False)), ("suffix", (None, ""))):
        if getattr(asked, name) not in unset:
            raise wrong(name, f"{name} is not offered here; leave it out.")
    most = asked.max_tokens or DEFAULT_TOKENS
    return Writing(
        prompts,
        sampling.chosen(asked, most, raw=True, top_logprobs=asked.logprobs),
        service_class=sampling.tier(asked),
        stream=bool(asked.stream),
        model=asked.model,
        include_usage=sampling.usage_wanted(asked),
    )


def whole(asked: Writing, response: Response, request_id: str, created: int) -> dict[str, Any]:
    """Raises the error of the first prompt that has one."""
    written = answers.outputs_of(Generated, asked.items, response)
    return {
        "id": f"cmpl-{request_id}",
        "object": "text_completion",
        "created": created,
        "model": response.model,
        "choices": [
            _choice(at, one.text, one.chosen, 0, one.finish_reason) for at, one in enumerate(written)
        ],
        "usage": answers.generation_usage(response.usage),
        "system_fingerprint": None,
    }


class Transcript:
    """The chunks of one stream."""

    def __init__(self, asked: Writing, model: str, request_id: str, created: int) -> None:
        self._include_usage = asked.include_usage
        self._frame = {
            "id": f"cmpl-{request_id}",
            "object": "text_completion",
            "created": created,
            "model": model,
            "system_fingerprint": None,
        }
        self._offset = 0
        self._chosen: list[Chosen] = []

    def begun(self) -> bytes:
        return b""

    def delta(self, delta: Delta) -> bytes:
        self._chosen += delta.chosen
        if not delta.text:
            return b""
        chosen, self._chosen = self._chosen, []
        said = self._chunk(_choice(0, delta.text, chosen, self._offset))
        self._offset += len(delta.text)
        return said

    def done(self, response: Response) -> bytes:
        """Raises the error that the response holds."""
        said = self._chunk(_choice(0, "", (), 0, answers.generation(response).finish_reason))
        if self._include_usage:
            usage = answers.generation_usage(response.usage)
            said += event({**self._frame, "choices": [], "usage": usage})
        return said

    def failed(self, error: EngineError) -> bytes:
        return event(openai.body(error))

    def ended(self) -> bytes:
        return DONE

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        usage = {"usage": None} if self._include_usage else {}
        return event({**self._frame, "choices": [choice], **usage})


def _choice(
    index: int, text: str, chosen: Sequence[Chosen], offset: int, reason: str | None = None
) -> dict[str, Any]:
    shown = logprobs.of_completion(chosen, offset) if chosen else None
    return {"index": index, "text": text, "logprobs": shown, "finish_reason": reason}
