"""Texts as words and the tokens of each, for models that answer by word. Threads may share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from engine.adapters.forward.packed import Ids

LONGEST = 4096
"""Characters of one word that are read; a run without any space is not tokenised whole."""
Splitter = Callable[[str], Iterable[tuple[str, int, int]]]
"""A text's words with the code points where each begins and ends."""


@dataclass(frozen=True, slots=True)
class Words:
    """A text's words: code points (n, 2), the tokens of all end to end, and how many each word has."""

    offsets: NDArray[np.int32]
    ids: Ids
    sizes: NDArray[np.int32]

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each word's tokens begin, and the end."""
        return np.concatenate([[0], np.cumsum(self.sizes, dtype=np.int64)])


class WordTokenizer:
    def __init__(self, tokenizer: Tokenizer, splitter: Splitter) -> None:
        self._tokenizer = tokenizer
        self._splitter = splitter

    def words(self, texts: Sequence[str], most_tokens: int) -> list[Words]:
        """Of each word at most `most_tokens` tokens, the first ones."""
        split = [list(self._splitter(text)) for text in texts]
        encodings = self._tokenizer.encode_batch(
            [[word[:LONGEST] for word, _, _ in words] for words in split],
            is_pretokenized=True,
            add_special_tokens=False,
        )
        found = []
        for words, encoding in zip(split, encodings, strict=True):
            offsets = np.array([(start, end) for _, start, end in words], np.int32).reshape(-1, 2)
            of = np.array([-1 if word is None else word for word in encoding.word_ids], np.int64)
            sizes = np.bincount(of, minlength=len(words)).astype(np.int32)
            ids = np.array(encoding.ids, np.int32)
            if len(sizes) and int(sizes.max()) > most_tokens:
                place = np.arange(len(ids)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
                ids, sizes = ids[place < most_tokens], np.minimum(sizes, most_tokens)
            found.append(Words(offsets, ids, sizes))
        return found

    def sized(self, words: Sequence[str]) -> tuple[Ids, NDArray[np.int32]]:
        """The tokens of words that belong to no text, end to end, and how many each has."""
        encoding = self._tokenizer.encode(words, is_pretokenized=True, add_special_tokens=False)
        of = np.array([-1 if word is None else word for word in encoding.word_ids], np.int64)
        return np.array(encoding.ids, np.int32), np.bincount(of, minlength=len(words)).astype(np.int32)

    def ids(self, words: Sequence[str]) -> list[int]:
        """The tokens of words that belong to no text: a prompt."""
        return list(self._tokenizer.encode(words, is_pretokenized=True, add_special_tokens=False).ids)
