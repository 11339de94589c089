"""Prompts and conversations as the text that a model was trained to continue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from engine.errors import InputTooLong, InvalidInput

ROLES = ("system", "user", "assistant", "tool")


class Chat:
    """A tokenizer with its chat template, if it has one. May be used by several threads at once."""

    def __init__(self, path: Path, max_tokens: int, trust_remote_code: bool) -> None:
        self._tokenizer: Any = AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=trust_remote_code
        )
        # The wrapper sets truncation on each call and is not for several threads; this part is.
        self._backend: Tokenizer = self._tokenizer.backend_tokenizer
        self.special = {
            added.content: number
            for number, added in self._backend.get_added_tokens_decoder().items()
            if added.special
        }
        self._max_tokens = max_tokens
        longest = max(len(token.encode()) for token in self._backend.get_vocab())
        self._max_bytes = max_tokens * longest
        self._markers = self._template_markers()

    def raw(self, text: str) -> list[int]:
        """Tokens of the text as it is. What it already spells out (a BOS) is not added a second time."""
        spelled = any(text.startswith(token) for token in self.special)
        return self._encode(text, add_special_tokens=not spelled)

    def prompt(self, text: str) -> list[int]:
        """Tokens of one user turn; `raw` without a template or if the text holds its special tokens."""
        if not self._tokenizer.chat_template or any(marker in text for marker in self._markers):
            return self.raw(text)
        return self._encode(self._render([{"role": "user", "content": text}]), add_special_tokens=False)

    def conversation(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Tokens of all turns and of the opening of the answer.

        Raises InvalidInput naming the message that is wrong.
        """
        if not self._tokenizer.chat_template:
            raise InvalidInput("messages: this model has no chat template; send a prompt")
        turns = [_turn(at, message) for at, message in enumerate(messages)]
        return self._encode(self._render(turns), add_special_tokens=False)

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidInput("the text holds half of a surrogate pair") from error
        if size > self._max_bytes:
            raise InputTooLong(
                f"the prompt has {size} bytes, certainly more than the {self._max_tokens} tokens "
                "that the model takes",
                max_tokens=self._max_tokens,
            )
        # The batch call, because it releases the GIL.
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return list(encoding.ids)

    def _render(self, turns: list[dict[str, str]]) -> str:
        try:
            text = self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise InvalidInput(f"messages: {error}") from error
        return str(text)

    def _template_markers(self) -> tuple[str, ...]:
        if not self._tokenizer.chat_template:
            return ()
        sample = self._render([{"role": "user", "content": ""}])
        return tuple(token for token in self.special if token in sample)


def _turn(at: int, message: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(message, Mapping):
        raise InvalidInput(f"messages[{at}] must be a map with role and content")
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise InvalidInput(f"messages[{at}].role must be one of {', '.join(ROLES)}, not {role!r}")
    if isinstance(content, str):
        return {"role": role, "content": content}
    if not isinstance(content, Sequence):
        raise InvalidInput(f"messages[{at}].content must be text or a list of text parts")
    texts = [part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
    if len(texts) != len(content) or not all(isinstance(text, str) for text in texts):
        raise InvalidInput(f"messages[{at}].content may hold parts of type text only")
    return {"role": role, "content": "".join(map(str, texts))}
