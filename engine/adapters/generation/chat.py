"""Prompts and conversations as the text that a model was trained to continue."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer

from engine.adapters.generation import turns
from engine.adapters.generation.probing import probe
from engine.adapters.generation.templates import FAILING, Template
from engine.adapters.generation.turns import Turn
from engine.errors import InputTooLong, InvalidInput


class Chat:
    """A tokenizer with its chat template, if it has one. May be used by several threads at once."""

    def __init__(
        self,
        path: Path,
        max_tokens: int,
        trust_remote_code: bool,
        image_token: str | None = None,
        template: str | None = None,
    ) -> None:
        """`image_token`: of a model that sees, what its template writes in the place of an image.
        `template`: where the directory has none. Raises BadWeights for a template beyond its bounds."""
        self._tokenizer: Any = AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=trust_remote_code
        )
        if not self._tokenizer.chat_template:
            self._tokenizer.chat_template = _beside(path) or template
        self._variables: dict[str, Any] = dict(self._tokenizer.special_tokens_map)
        self._templates = _tried(self._tokenizer.chat_template, self._variables)
        self._image_token = image_token
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

    def raw(self, text: str, pictures: Sequence[str] = ()) -> list[int]:
        """Tokens of the text as it is. What it already spells out (a BOS) is not added a second time.

        `pictures`: by image, what stands in the place of its image token.
        """
        spelled = any(text.startswith(token) for token in self.special)
        return self._encode(self._shown(text, pictures), add_special_tokens=not spelled)

    def prompt(self, text: str, pictures: Sequence[str] = ()) -> list[int]:
        """Tokens of one user turn; `raw` without a template or if the text holds its special tokens."""
        if not self._tokenizer.chat_template or any(marker in text for marker in self._markers):
            return self.raw(text, pictures)
        rendered = self._render([self._user(text, len(pictures))])
        return self._encode(self._shown(rendered, pictures), add_special_tokens=False)

    def conversation(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        pictures: Sequence[str] = (),
    ) -> list[int]:
        """Tokens of all turns and of the opening of the answer.

        Special tokens that a message spells out are plain text: only the template's own are real.
        Raises InvalidInput naming the message that is wrong.
        """
        template = self._tokenizer.chat_template
        if not template:
            raise InvalidInput("messages: this model has no chat template; send a prompt")
        own = turns.of(messages, sees=self._image_token is not None)
        if "tools" not in str(template):
            own, tools = turns.without_tools(own, tools), ()
        if any(token in text for turn in own for text in turns.texts(turn) for token in self.special):
            return self._with_spelled(own, tools, pictures)
        return self._encode(self._shown(self._render(own, tools), pictures), add_special_tokens=False)

    def _user(self, text: str, images: int) -> Turn:
        if self._image_token is None:
            return {"role": "user", "content": text}
        places = [{"type": "image"}] * images
        return {"role": "user", "content": [*places, {"type": "text", "text": text}]}

    def _shown(self, text: str, pictures: Sequence[str]) -> str:
        """What was rendered, with each image in its place. Raises InvalidInput."""
        if self._image_token is None:
            return text
        first, *rest = text.split(self._image_token)
        if len(rest) != len(pictures):
            raise InvalidInput(
                f"the prompt has {len(rest)} places for images and {len(pictures)} were sent; "
                f"a place is written {self._image_token} in a raw prompt"
            )
        return first + "".join(f"{shown}{after}" for shown, after in zip(pictures, rest, strict=True))

    def _with_spelled(
        self, own: list[Turn], tools: Sequence[Mapping[str, Any]], pictures: Sequence[str]
    ) -> list[int]:
        """As `conversation`, where contents spell special tokens: marks stand for them in the template.

        Other conversations do without, so that their tokens are exactly those of transformers.
        """
        spelled = sorted(self.special, key=len, reverse=True)
        mark = _mark("".join(text for turn in own for text in turns.texts(turn)))
        places = {token: f"{mark}{at}{mark}" for at, token in enumerate(spelled)}
        found = re.compile("|".join(map(re.escape, spelled)))
        marked = [
            turns.reworded(turn, lambda text: found.sub(lambda token: places[token[0]], text)) for turn in own
        ]
        pieces = self._shown(self._render(marked, tools), pictures).split(
            mark
        )  # every second is the number of a special token
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
            chosen = self._tokenizer.get_chat_template(tools=list(tools) or None)
            return self._templates[chosen].render(own, tools, self._variables)
        except FAILING as error:
            raise InvalidInput(f"messages: {error}") from error

    def _template_markers(self) -> tuple[str, ...]:
        if not self._tokenizer.chat_template:
            return ()
        sample = self._render([self._user("", 0)])
        return tuple(token for token in self.special if token in sample)


def _tried(given: str | Mapping[str, str] | None, variables: Mapping[str, Any]) -> dict[str, Template]:
    """By its text, each template of a tokenizer, which may have one for tools. Raises BadWeights."""
    texts = list(given.values()) if isinstance(given, Mapping) else [given] if given else []
    for text in texts:
        probe(text, variables)
    return {text: Template(text) for text in texts}


def _beside(path: Path) -> str | None:
    """The template of directories from before tokenizers held those of models that see."""
    file = path / "chat_template.json"
    if not file.is_file():
        return None
    found: str | None = json.loads(file.read_text("utf-8")).get("chat_template")
    return found


def _mark(text: str) -> str:
    """A character that is none, by Unicode, and is not in `text`."""
    mark = next((m for m in map(chr, range(0xFDD0, 0xFDF0)) if m not in text), None)
    if mark is None:
        raise InvalidInput("messages hold all of U+FDD0 to U+FDEF, which are no characters")
    return mark
