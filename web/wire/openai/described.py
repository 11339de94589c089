"""What OpenAI's routes answer, as types: their own modules write them by hand. The reference is made of
these, and tests hold the two together."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from web.wire.described import Exact


class ReadTokens(Exact):
    """Of `truncated` inputs only the beginning was read."""

    prompt_tokens: int
    total_tokens: int
    truncated: int | UnsetType = UNSET


class Vector(Exact):
    """Numbers, or little-endian float32 as base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsAnswer(Exact):
    object: Literal["list"]
    data: list[Vector]
    model: str
    usage: ReadTokens


class WrittenTokens(Exact):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    images: int | UnsetType = UNSET


class TokenChance(Exact):
    """`bytes` are those of the token's text in UTF-8."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenToken(TokenChance):
    top_logprobs: list[TokenChance]


class ChatChances(Exact):
    content: list[ChosenToken]
    refusal: None


class CalledFunction(Exact):
    """`arguments` is JSON."""

    name: str
    arguments: str


class Called(Exact):
    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatAnswerMessage(Exact):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: list[Called] | UnsetType = UNSET


class ChatChoice(Exact):
    index: int
    message: ChatAnswerMessage
    logprobs: ChatChances | None
    finish_reason: str


class ChatAnswer(Exact):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: WrittenTokens
    system_fingerprint: None


class CompletionChances(Exact):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(Exact):
    index: int
    text: str
    logprobs: CompletionChances | None
    finish_reason: str | None


class CompletionAnswer(Exact):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: WrittenTokens
    system_fingerprint: None


class OutputText(Exact):
    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[Any]


class OutputMessage(Exact):
    id: str
    type: Literal["message"]
    status: Literal["completed", "incomplete"]
    role: Literal["assistant"]
    content: list[OutputText]


class ResponsesTokens(Exact):
    input_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class ResponsesAnswer(Exact):
    """What the request said of `tools`, `store` and the like is repeated as it counted here."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete"]
    error: None
    incomplete_details: dict[str, str] | None
    instructions: str | None
    max_output_tokens: int
    model: str
    output: list[OutputMessage]
    parallel_tool_calls: bool
    previous_response_id: None
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str
    tools: list[Any]
    top_p: float
    truncation: str
    usage: ResponsesTokens
    metadata: dict[str, str]
