"""Text into token ids, off the GIL and without the weights.

Threads may share a tokenizer. Special tokens are put around afterwards, so that a text is cut to length
without losing them, and a query that is scored against many passages is tokenised once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer
from transformers import AutoTokenizer

from engine.adapters.forward.packed import AFTER_PADDING, Ids
from engine.adapters.preparing.cutting import Cutter
from engine.catalog import ModelSpec
from engine.errors import InputTooLong, InvalidInput
from engine.requests import Item, Overflow

CHARACTERS_PER_TOKEN = 64
"""Text beyond this many characters for each token that the model takes is not even tokenised."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Token ids with their token type ids."""

    ids: Ids
    types: Ids


@dataclass(frozen=True, slots=True)
class Frame:
    """The special tokens around one text, or around and between the two of a pair."""

    around: tuple[Piece, ...]
    types: tuple[int, ...]
    """The token type of each text."""

    @property
    def length(self) -> int:
        return sum(len(piece.ids) for piece in self.around)

    def strip(self, ids: Ids) -> Ids:
        """The ids of one text without these special tokens, where they stand around it already."""
        first, last = self.around[0].ids, self.around[-1].ids
        end = len(ids) - len(last)
        framed = len(first) <= end and self.length
        if framed and np.array_equal(ids[: len(first)], first) and np.array_equal(ids[end:], last):
            return ids[len(first) : end]
        return ids

    def ended(self, token: int) -> Frame:
        """This frame with `token` at its end, once."""
        *before, last = self.around
        if len(last.ids) and last.ids[-1] == token:
            return self
        end = Piece(np.append(last.ids, np.int32(token)), np.append(last.types, np.int32(0)))
        return Frame((*before, end), self.types)

    def fill(self, *texts: Ids) -> Piece:
        """The texts' ids with the special tokens in their places."""
        parts = [self.around[0]]
        for ids, kind, after in zip(texts, self.types, self.around[1:], strict=True):
            parts += [Piece(ids, np.full(len(ids), kind, np.int32)), after]
        return Piece(np.concatenate([p.ids for p in parts]), np.concatenate([p.types for p in parts]))


class TextTokenizer:
    """The tokenizer of the model directory `path`."""

    def __init__(self, path: Path) -> None:
        file = path / "tokenizer.json"
        self._tokenizer: Tokenizer = (
            Tokenizer.from_file(str(file))
            if file.is_file()
            else AutoTokenizer.from_pretrained(path, local_files_only=True).backend_tokenizer
        )
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.cutter = Cutter(self._tokenizer)
        self.special = _special(self._tokenizer, path)
        self.single = _frame(self._tokenizer.encode("a"))
        self.pair = _frame(self._tokenizer.encode("a", "a"))
        if self.special.append_eos:
            self.single = self.single.ended(self.id_of(self.special.eos))

    @property
    def size(self) -> int:
        return self._tokenizer.get_vocab_size()

    def ids(self, texts: Sequence[str]) -> list[Ids]:
        """Token ids without special tokens; of valid texts only (see `text_of`)."""
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.int32) for encoding in encoded]

    def encodings(self, texts: Sequence[str]) -> list[Encoding]:
        """As `ids`, with the code points and the word of each token. Slower."""
        return self._tokenizer.encode_batch(list(texts), add_special_tokens=False)

    @property
    def bare(self) -> Frame:
        """Nothing around a text."""
        none = Piece(np.zeros(0, np.int32), np.zeros(0, np.int32))
        return Frame((none, none), (0,))

    @property
    def unknown(self) -> int | None:
        """What stands for text that the vocabulary does not have."""
        model = json.loads(self._tokenizer.to_str())["model"]
        named = model.get("unk_token")
        return model.get("unk_id") if named is None else self.find(named)

    def find(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    def id_of(self, token: str) -> int:
        """Raises LookupError when there is no such token."""
        found = self.find(token)
        if found is None:
            raise LookupError(f"the tokenizer has no token {token!r}")
        return found


@dataclass(frozen=True, slots=True)
class Special:
    """Tokens that stand for no text, as `tokenizer_config.json` names them; empty where it has none."""

    mask: str
    eos: str
    others: tuple[str, ...]
    append_eos: bool
    """Whether the end is put behind every text, though `tokenizer.json` does not say so."""


def _special(tokenizer: Tokenizer, path: Path) -> Special:
    file = path / "tokenizer_config.json"
    config = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    named = {
        role: value["content"] if isinstance(value, dict) else str(value or "")
        for role in (
            "mask_token",
            "eos_token",
            "cls_token",
            "sep_token",
            "pad_token",
            "unk_token",
            "bos_token",
        )
        for value in [config.get(role)]
    }
    if not named["mask_token"]:
        named["mask_token"] = next(
            (t for t in ("[MASK]", "<mask>") if tokenizer.token_to_id(t) is not None), ""
        )
    others = tuple(
        token
        for role, token in named.items()
        if role != "mask_token" and tokenizer.token_to_id(token) is not None
    )
    return Special(named["mask_token"], named["eos_token"], others, config.get("add_eos_token") is True)


def _frame(encoding: Encoding) -> Frame:
    """What stands around the sentinels of `encoding`."""
    around: list[Piece] = []
    types: list[int] = []
    texts = encoding.sequence_ids
    start = 0
    for text in range(encoding.n_sequences):
        first = texts.index(text)
        last = len(texts) - texts[::-1].index(text)
        around.append(_piece(encoding, start, first))
        types.append(encoding.type_ids[first])
        start = last
    around.append(_piece(encoding, start, len(texts)))
    return Frame(tuple(around), tuple(types))


def _piece(encoding: Encoding, start: int, end: int) -> Piece:
    return Piece(
        np.array(encoding.ids[start:end], np.int32), np.array(encoding.type_ids[start:end], np.int32)
    )


@dataclass(frozen=True, slots=True)
class Room:
    """How long an input may be, and what happens to a longer one."""

    tokens: int
    overflow: Overflow

    @classmethod
    def of(cls, spec: ModelSpec, tokens: int, asked: Overflow) -> Room:
        """Raises InvalidInput for a policy that whole-input models cannot follow."""
        overflow = Overflow(spec.overflow) if asked is Overflow.DEFAULT else asked
        if overflow is Overflow.WINDOW:
            raise InvalidInput(f"{spec.id} does not read in windows; overflow_policy: truncate_text or error")
        return cls(tokens, overflow)

    def clip(self, text: str) -> str:
        """`text` without what could not possibly fit."""
        return text[: self.tokens * CHARACTERS_PER_TOKEN]

    def fit(self, ids: Ids, text: str, room: int, index: int | None) -> tuple[Ids, bool]:
        """`ids`, cut to `room` tokens, and whether anything of `text` was lost; `index` is None for a query.
        Raises InputTooLong."""
        clipped = len(text) > self.tokens * CHARACTERS_PER_TOKEN
        if len(ids) <= room and not clipped:
            return ids, False
        if self.overflow is Overflow.ERROR:
            length = len(ids) + self.tokens - room
            at_least = "at least " if clipped else ""
            raise InputTooLong(
                f"{'the query' if index is None else f'item {index}'} is {at_least}{length} tokens "
                f"long ({len(text)} characters); the model takes {self.tokens}",
                item=index,
                length=length,
                max_length=self.tokens,
            )
        return ids[:room], True


def max_tokens(spec: ModelSpec, config: Mapping[str, Any], stored: int | None = None) -> int:
    """The longest input, special tokens included: the entry's, else what the model's directory has
    `stored`, but never beyond the model's positions."""
    wanted = spec.max_tokens or stored
    positions = config.get("max_position_embeddings")
    if positions is None:
        return wanted or 512
    if config.get("model_type") in AFTER_PADDING | {"mpnet"}:
        positions -= int(config.get("pad_token_id", 1)) + 1
    return min(wanted or int(positions), int(positions))


_RELATIVE = frozenset(["deberta-v2", "t5", "mt5"])
"""Encoders with relative positions only: what bounds them is what they were trained with."""


def encoder_tokens(spec: ModelSpec, encoder: Any, otherwise: int) -> int:
    """The longest input of an encoder with this configuration, special tokens included. `otherwise`: where
    neither its positions nor the entry bound it."""
    absolute = encoder.model_type not in _RELATIVE or getattr(encoder, "position_biased_input", False)
    return max_tokens(spec, encoder.to_dict()) if absolute else spec.max_tokens or otherwise


def text_of(item: Item, index: int | None) -> str:
    """The item's text; `index` is None for a query. Raises InvalidInput when it has none, or more."""
    name = "the query" if index is None else f"item {index}"
    media = [m for m in ("images", "audio", "video", "document") if getattr(item, m) not in (None, ())]
    if media:
        raise InvalidInput(f"{name} has {' and '.join(media)}; the model takes text only", item=index)
    if item.tokens is not None:
        raise InvalidInput(f"{name} is token ids; the model takes text only", item=index)
    if item.text is None:
        raise InvalidInput(f"{name} has no text", item=index)
    if not item.text.isascii():
        try:
            item.text.encode("utf-8")
        except UnicodeEncodeError as error:
            wrong = f"{name}: character {error.start} of the text is half of a surrogate pair"
            raise InvalidInput(wrong, item=index) from error
    return item.text


def known(tokens: Sequence[int], vocabulary: int, index: int) -> list[int]:
    """Ids that a client made, checked. Raises InvalidInput for one that the model does not have."""
    for token in tokens:
        if not 0 <= token < vocabulary:
            raise InvalidInput(
                f"item {index} holds token {token}; this model's go from 0 to {vocabulary - 1}. "
                "Token ids are those of the model's own tokenizer: a client that makes them for another "
                "model must send text",
                item=index,
            )
    return list(tokens)


def prompted(prompts: Mapping[str, str], role: str, instruction: str | None, text: str) -> str:
    """`text` as the model wants to read it in the role of `query` or `document`.

    A template with `{text}` is filled in; one without stands in front. An instruction goes through the
    `instruction` template; where the entry has none it takes the prompt's place, as the `prompt`
    argument of sentence-transformers does.
    """
    if instruction is None:
        template = prompts.get(role, "")
    else:
        template = prompts.get("instruction", "{instruction}{text}")
    if "{text}" not in template:
        template += "{text}"
    values = {"text": text, "instruction": instruction or ""}
    return re.sub(r"\{(text|instruction)\}", lambda found: values[found[1]], template)
