"""Prompts and conversations as the text that a model was trained to continue."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from engine.adapters.generation import turns
from engine.adapters.generation.turns import Turn
from engine.errors import InputTooLong, InvalidInput


class Chat:
    """A tokenizer with its chat template, if it has one. May be used by several threads at once."""

    def __init__(self, path: Path, max_tokens: int, trust_remote_code: bool) -> None:
        self._tokenizer: Any = AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=trust_remote_code
        )
        # The wrapper sets truncation on each call and is not for several threads; this part is.
        self.backend: Tokenizer = self._tokenizer.backend_tokenizer
        self._plainly = Tokenizer.from_str(self.backend.to_str())
        self._plainly.encode_special_tokens = True  # as text: what looks like one is none
        self.special = {
            added.content: number
            for number, added in self.backend.get_added_tokens_decoder().items()
            if added.special
        }
        self._max_tokens = max_tokens
        longest = max(len(token.encode()) for token in self.backend.get_vocab())
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

    def conversation(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Tokens of all turns and of the opening of the answer.

        Special tokens that a message spells out are plain text: only the template's own are real.
        Raises InvalidInput naming the message that is wrong.
        """
        template = self._tokenizer.chat_template
        if not template:
            raise InvalidInput("messages: this model has no chat template; send a prompt")
        own = turns.of(messages)
        if "tools" not in str(template):
            own, tools = turns.without_tools(own, tools), ()
        if any(token in turn["content"] for turn in own for token in self.special):
            return self._with_spelled(own, tools)
        return self._encode(self._render(own, tools), add_special_tokens=False)

    def _with_spelled(self, own: list[Turn], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """As `conversation`, where contents spell special tokens: marks stand for them in the template.

        Other conversations do without, so that their tokens are exactly those of transformers.
        """
        spelled = sorted(self.special, key=len, reverse=True)
        mark = _mark("".join(turn["content"] for turn in own))
        places = {token: f"{mark}{at}{mark}" for at, token in enumerate(spelled)}
        found = re.compile("|".join(map(re.escape, spelled)))
        marked = [
            {**turn, "content": found.sub(lambda token: places[token[0]], turn["content"])} for turn in own
        ]
        pieces = self._render(marked, tools).split(mark)  # every second is the number of a special token
        self._check(pieces)
        around = self.backend.encode_batch_fast(pieces[::2], add_special_tokens=False)
        plain = [encoding.ids for encoding in self._plainly.encode_batch(spelled, add_special_tokens=False)]
        ids = list(around[0].ids)
        for number, after in zip(pieces[1::2], around[1:], strict=True):
            ids += plain[int(number)] + after.ids
        return ids

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        self._check([text])
        # The batch call, because it releases the GIL.
        (encoding,) = self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return list(encoding.ids)

    def _check(self, texts: Sequence[str]) -> None:
        """Raises for what is no text or certainly too much of it."""
        try:
            size = sum(len(text.encode()) for text in texts)
        except UnicodeEncodeError as error:
            raise InvalidInput("the text holds half of a surrogate pair") from error
        if size > self._max_bytes:
            raise InputTooLong(
                f"the prompt has {size} bytes, certainly more than the {self._max_tokens} tokens "
                "that the model takes",
                max_length=self._max_tokens,
            )

    def _render(self, own: list[Turn], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        try:
            text = self._tokenizer.apply_chat_template(
                own, tools=list(tools) or None, tokenize=False, add_generation_prompt=True
            )
        except (TemplateError, TypeError, ValueError, LookupError) as error:
            raise InvalidInput(f"messages: {error}") from error
        return str(text)

    def _template_markers(self) -> tuple[str, ...]:
        if not self._tokenizer.chat_template:
            return ()
        sample = self._render([{"role": "user", "content": ""}])
        return tuple(token for token in self.special if token in sample)


def _mark(text: str) -> str:
    """A character that is none, by Unicode, and is not in `text`."""
    mark = next((m for m in map(chr, range(0xFDD0, 0xFDF0)) if m not in text), None)
    if mark is None:
        raise InvalidInput("messages hold all of U+FDD0 to U+FDEF, which are no characters")
    return mark
