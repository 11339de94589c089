"""Texts as tokens that can be shown, and tokens as texts again."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

from engine.estimates import Tokens


class Cutter:
    """A model's tokenizer for those who want to see what it does. Threads may share it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def cut(self, texts: Sequence[str], special: bool) -> list[Tokens]:
        """`special`: with the special tokens that the model reads around a text."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=special)
        return [
            Tokens(ids, marks, encoding.offsets, self._names(ids, marks))
            for encoding in encodings
            for ids, marks in [(encoding.ids, encoding.special_tokens_mask)]
        ]

    def spell(self, ids: Sequence[Sequence[int]], special: bool) -> list[str]:
        """`special`: with the special tokens written out. An id that the tokenizer lacks spells nothing."""
        return self._tokenizer.decode_batch([list(each) for each in ids], skip_special_tokens=not special)

    def _names(self, ids: Sequence[int], marks: Sequence[int]) -> dict[int, str]:
        special = {number for number, mark in zip(ids, marks, strict=True) if mark}
        return {number: self._tokenizer.id_to_token(number) or "" for number in special}
