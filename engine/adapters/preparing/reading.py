"""How the texts of one role, queries or documents, become the token ids that its transformer reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.adapters.forward import table
from engine.adapters.forward.packed import Ids
from engine.adapters.preparing.routes import QUERY, Directory, Route
from engine.adapters.preparing.tokens import Room, TextTokenizer, known, max_tokens, prompted, text_of
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import Item, Overflow

_PLACE = "\ufdd0"
"""Stands in a prompt for token ids; no character, by Unicode."""
_UNBOUNDED = 8192
"""Tokens of a text for a model without positions whose directory and entry set no bound."""


@dataclass(frozen=True, slots=True)
class Read:
    """One input as its transformer reads it."""

    ids: Ids
    own: slice
    """The tokens of the input itself, without special tokens, markers and what was filled in."""
    seen: int
    """So many first tokens are attended to: all but those that queries are filled up with."""
    prompt: int
    """Tokens of the prompt and before it."""
    cut: bool


@dataclass(frozen=True, slots=True)
class Wording:
    """What one call puts around its texts."""

    prompt: str
    """Which of the prompts: that of a role, or of an adapter."""
    instruction: str | None


class Reader:
    """Reads the inputs of one role."""

    def __init__(self, spec: ModelSpec, stored: Directory, role: str, tokenizer: TextTokenizer) -> None:
        route = stored.routes[role]
        config = {} if route.looked_up else table.described(route)
        self._spec, self._route, self._role = spec, route, role
        self._prompts = stored.prompts
        self.tokenizer = tokenizer
        self.vocabulary = int(config.get("vocab_size") or tokenizer.size)
        self._max_tokens = _longest(spec, config, route, role)
        self._frame = tokenizer.bare if route.table else tokenizer.single
        self._dropped = tokenizer.unknown if route.table and table.of_model2vec(route.path) else None
        if end := spec.options.get("append_token"):
            self._frame = self._frame.ended(tokenizer.id_of(str(end)))
        marker = stored.markers.get(role)
        self._marker = None if marker is None else _marker(tokenizer, marker)
        self._expansion = route.expansion if role == QUERY else None
        self._filler = self._fills_with(route) if self._expansion else 0

    def read(
        self,
        items: Sequence[Item],
        instruction: str | None,
        overflow: Overflow,
        adapter: str | None = None,
    ) -> list[Read | EngineError]:
        """One for each item, or what is wrong with it. An adapter may have a prompt of its name."""
        room = Room.of(self._spec, self._max_tokens, overflow)
        found: list[Read | EngineError] = []
        texts: list[str] = []
        places: list[int] = []
        named = adapter if adapter is not None and adapter in self._prompts else self._role
        wording = Wording(named, instruction)
        before = self._before(wording)
        for index, item in enumerate(items):
            try:
                if item.tokens is not None:
                    ids = self._given(item.tokens, wording, index)
                    found.append(self._read(ids, "", before, room, index))
                    continue
                texts.append(self._prompted(wording, text_of(item, index)))
                places.append(index)
                found.append(InvalidInput())
            except EngineError as error:
                found.append(error)
        every = self.tokenizer.ids([room.clip(text) for text in texts])
        for index, text, ids in zip(places, texts, every, strict=True):
            try:
                found[index] = self._read(ids, text, before, room, index)
            except EngineError as error:
                found[index] = error
        return found

    def query(
        self, item: Item, instruction: str | None, overflow: Overflow, adapter: str | None = None
    ) -> Read:
        """The query that documents are compared with. Raises what is wrong with it."""
        (found,) = self.read([item], instruction, overflow, adapter)
        if isinstance(found, EngineError):
            said = found.message.replace("item 0", "the query", 1)
            raise type(found)(said, **found.details)
        return found

    def _prompted(self, wording: Wording, text: str) -> str:
        whole = prompted(self._prompts, wording.prompt, wording.instruction, text)
        return whole.lower() if self._route.lower else whole

    def _before(self, wording: Wording) -> int:
        """Tokens of the prompt, and of the special ones before it; 0 where there is no prompt."""
        if self._route.include_prompt:
            return 0
        before, _, _ = self._prompted(wording, _PLACE).partition(_PLACE)
        if not before:
            return 0
        return len(self._frame.around[0].ids) + len(self.tokenizer.ids([before])[0])

    def _given(self, tokens: Sequence[int], wording: Wording, index: int) -> Ids:
        """Token ids that the client made, less the special tokens that are put around any text."""
        ids = self._frame.strip(np.array(known(tokens, self.vocabulary, index), np.int32))
        before, _, after = self._prompted(wording, _PLACE).partition(_PLACE)
        if not before and not after:
            return ids
        first, last = self.tokenizer.ids([before, after])
        return np.concatenate([first, ids, last])

    def _read(self, ids: Ids, text: str, prompt: int, room: Room, index: int) -> Read:
        if self._route.looked_up:
            return self._checked(Read(ids, slice(0, len(ids)), len(ids), 0, False), index)
        taken = self._frame.length + (self._marker is not None)
        ids, cut = room.fit(ids, text, room.tokens - taken, index)
        if self._dropped is not None:
            ids = ids[ids != self._dropped]
        first = len(self._frame.around[0].ids) + (self._marker is not None)
        own = slice(first, first + len(ids))
        if self._marker is not None:
            ids = np.concatenate([np.array([self._marker], np.int32), ids])
        ids = self._frame.fill(ids).ids
        seen = len(ids)
        if self._expansion is not None and seen < self._expansion.length:
            ids = np.concatenate([ids, np.full(self._expansion.length - seen, self._filler, np.int32)])
            seen = len(ids) if self._expansion.attend else seen
        return self._checked(Read(ids, own, seen, min(prompt, max(len(ids) - 1, 0)), cut), index)

    def _checked(self, read: Read, index: int) -> Read:
        if not len(read.ids) and not (self._route.looked_up or self._route.table):
            raise InvalidInput(f"item {index} has no tokens", item=index)
        if int(read.ids.max(initial=0)) >= self.vocabulary:
            raise InvalidInput(f"item {index} holds a token that the model does not have", item=index)
        return read

    def _fills_with(self, route: Route) -> int:
        assert route.expansion is not None
        special = self.tokenizer.special
        token = route.expansion.token or special.mask or special.eos
        if not token:
            raise LookupError("queries are to be filled up, and the tokenizer names no mask token")
        return self.tokenizer.id_of(token)

    def skipped(self) -> NDArray[np.int32]:
        """Ids of the words that have no vectors in documents; of words that are one token each."""
        every = self.tokenizer.ids(list(self._route.skipped))
        return np.array([ids[0] for ids in every if len(ids) == 1], np.int32)


def _longest(spec: ModelSpec, config: dict[str, object], route: Route, role: str) -> int:
    if route.looked_up:
        return spec.max_tokens or 512
    if route.table:
        return spec.max_tokens or route.max_tokens or _UNBOUNDED
    longest = max_tokens(spec, config, route.document_tokens or route.max_tokens)
    return min(longest, route.query_tokens or longest) if role == QUERY else longest


def _marker(tokenizer: TextTokenizer, named: str) -> int:
    """The id of a marker, which PyLate writes with the space behind it."""
    for token in (named, named.strip()):
        found = tokenizer.find(token)
        if found is not None:
            return found
    return tokenizer.id_of(named)


def is_words(ids: NDArray[np.int32], own: slice, special: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which tokens are of the input itself and none of the `special` ones."""
    inside = np.zeros(len(ids), np.bool_)
    inside[own] = True
    return inside & ~np.isin(ids, special)
