"""What each token of a model spells, in bytes; and grammars over those bytes."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cached_property
from threading import Lock

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray
from tokenizers import Tokenizer

from engine import requests
from engine.adapters.generation.grammars import Gatekeeper, brief, compiled
from engine.errors import InvalidInput


class Grammar:
    """How far an answer has come in the language that it must be of."""

    def __init__(self, matcher: LLMatcher, size: int) -> None:
        self._matcher = matcher
        self._size = size

    def fresh(self) -> Grammar:
        """The same place, for another answer."""
        return Grammar(self._matcher.deep_copy(), self._size)

    def allowed(self) -> NDArray[np.bool_]:
        """(vocabulary,): which tokens may come next."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, bitorder="little")[: self._size].astype(np.bool_)

    def take(self, token: int) -> None:
        self._matcher.consume_token(token)

    @property
    def ended(self) -> bool:
        """Whether nothing but the end may follow."""
        return self._matcher.is_stopped()

    @property
    def wrong(self) -> InvalidInput | None:
        """Why it cannot be followed any further: it took more states than one may."""
        if not self._matcher.is_error():
            return None
        return InvalidInput(f"the grammar is too complex to be followed: {brief(self._matcher.get_error())}")


class Vocabulary:
    """Made once a model; may be used by several threads."""

    def __init__(self, tokenizer: Tokenizer, size: int, eos: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._size = size
        self._eos = sorted(eos)
        self._making = Lock()
        self._gatekeeper = Gatekeeper()

    @cached_property
    def spelled(self) -> list[bytes]:
        """What each token spells; nothing where there is no such token."""
        written = json.loads(self._tokenizer.to_str())
        parts = json.dumps([written["pre_tokenizer"], written["decoder"]])
        byte_level = _bytes_of_characters() if '"ByteLevel"' in parts else {}
        last = max(self._tokenizer.get_vocab().values())
        spelled = [b""] * max(self._size, last + 1)  # some models have fewer tokens than their tokenizer
        for token, number in self._tokenizer.get_vocab(with_added_tokens=False).items():
            spelled[number] = _spelled(token, byte_level)
        for number, added in self._tokenizer.get_added_tokens_decoder().items():
            spelled[number] = added.content.encode()
        return spelled

    def grammar(self, asked: requests.Grammar) -> Grammar:
        """Ready for its first token. Raises InvalidInput with what is wrong with it, QueueFull while other
        grammars are looked at."""
        self._gatekeeper.admit(asked)
        with self._making:
            tokens = self._tokens
        return Grammar(compiled(tokens, asked.kind, asked.text), self._size)

    @cached_property
    def _tokens(self) -> LLTokenizer:
        return LLTokenizer(TokenizerWrapper(_Spelling(self, self._tokenizer)), eos_token=self._eos or None)

    @cached_property
    def special(self) -> frozenset[int]:
        """Tokens without text, the model's own ends among them."""
        added = self._tokenizer.get_added_tokens_decoder()
        return frozenset([*self._eos, *(number for number, token in added.items() if token.special)])


class _Spelling:
    """The tokenizer as the grammar library looks at it. Its own reader knows only some decoders."""

    def __init__(self, vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
        self.eos_token_id = min(vocabulary.special, default=0)  # the real ones are given beside it
        self.bos_token_id = None
        self.tokens = vocabulary.spelled
        self.special_token_ids = sorted(vocabulary.special)
        self._tokenizer = tokenizer

    def __call__(self, text: bytes) -> list[int]:
        return self._tokenizer.encode(text.decode(errors="replace"), add_special_tokens=False).ids


def _spelled(token: str, byte_level: dict[str, int]) -> bytes:
    if byte_level and all(character in byte_level for character in token):
        return bytes(byte_level[character] for character in token)
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("\u2581", " ").encode()


def _bytes_of_characters() -> dict[str, int]:
    """GPT-2's spelling: printable bytes stand for themselves, the others for characters from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}
