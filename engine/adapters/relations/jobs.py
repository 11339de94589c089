"""Texts, their entities and the relations asked for, as jobs for a GLiREL: windows of whole words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.adapters.family import Prepared
from engine.adapters.forward.packed import Ids
from engine.adapters.labelling.open_labels import (
    OpenLabels,
    Thresholds,
    Wanted,
    chance,
    checked,
    names,
    no_arrays,
)
from engine.adapters.preparing.cutting import Cutter
from engine.adapters.preparing.kinds import only_text
from engine.adapters.preparing.tokens import encoder_tokens
from engine.adapters.preparing.windows import Span, fitted
from engine.adapters.preparing.words import Words, WordTokenizer
from engine.adapters.relations.directory import ADDED, RELATION, SEPARATOR, Directory
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import Entity, ExtractOptions, Item, Options, Task, Usage

THRESHOLD = 0.5
OVERLAP = 64
ENTITIES = 200
"""In one text, at most: every pair of them is judged."""
_WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")


@dataclass(frozen=True, slots=True)
class Window:
    """Some words of a text behind the relations asked for, as the encoder reads them."""

    ids: Ids
    starts: NDArray[np.int64]
    """Where each word's tokens begin in `ids`, those of the relations first, and the end of the last."""
    places: NDArray[np.int64]
    """(entities, 2): first and last word of each, behind the relations."""
    entities: tuple[int, ...]
    """Which of the text's these are."""
    pairs: NDArray[np.int64]
    """(pairs, 2): heads and tails, as rows of `places`."""


@dataclass(frozen=True, slots=True)
class RelationsJob:
    entities: tuple[Entity, ...]
    windows: tuple[Window, ...]
    wanted: Wanted
    lead: int
    """Words before the text in every window."""


class RelationsPreparer:
    """Splits into words, finds those of each entity, and lays windows."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        directory = Directory(path)
        self._shape = directory.shape
        tokenizer = directory.tokenizer()
        self.cutter = Cutter(tokenizer)
        self._labels = OpenLabels(spec)
        self._tokenizer = WordTokenizer(tokenizer, _split)
        around = tokenizer.encode([], is_pretokenized=True)
        end = next((i for i, name in enumerate(around.tokens) if name in ("[SEP]", "</s>")), len(around.ids))
        self._before, self._after = around.ids[:end], around.ids[end:]
        otherwise = 8 * self._shape.words
        self._room = encoder_tokens(spec, directory.encoder, otherwise) - len(around.ids)

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        if task is not Task.EXTRACT or not isinstance(options, ExtractOptions):
            raise InvalidInput(f"This model finds relations in texts; it cannot {task}.")
        if options.instruction is not None:
            raise InvalidInput("This model finds relations and cannot follow an instruction.")
        wanted = self._wanted(options)
        read = [word for label in wanted.prompts for word in (RELATION, label)] + [SEPARATOR]
        before, sizes = self._tokenizer.sized(read)
        if len(before) > self._room // 2:
            raise InputTooLong(
                f"The relations take {len(before)} tokens; {self._spec.id} reads at most {self._room // 2} "
                "beside a text. Ask for fewer at once.",
                length=len(before),
                max_length=self._room // 2,
            )
        found: list[Prepared | EngineError] = []
        for index, item in enumerate(items):
            try:
                found.append(self._one(item, wanted, before, sizes, options))
            except EngineError as error:
                found.append(error.at(index))
        return found

    def _wanted(self, options: ExtractOptions) -> Wanted:
        no_arrays(options.output_schema, "output_schema")
        no_arrays(options.extra, "options")
        schema = options.output_schema or {}
        if strange := sorted(set(schema) - {"relations"}):
            raise InvalidInput(
                f"output_schema.{strange[0][:100]} is not known to this model; it takes relations."
            )
        asked = schema.get("relations", options.labels)
        listed = list(asked) if isinstance(asked, Mapping) else asked
        thresholds = Thresholds.of(self._spec, options, THRESHOLD)
        wanted = self._labels.choose(names(listed, "output_schema.relations"), thresholds)
        if any(marker in label for label in wanted.prompts for marker in ADDED):
            raise InvalidInput("A relation holds one of the model's own markers; leave it out.")
        return wanted

    def _one(
        self, item: Item, wanted: Wanted, before: Ids, sizes: NDArray[np.int32], options: ExtractOptions
    ) -> Prepared:
        text = only_text(item)
        entities = _given(item, text)
        room = self._room - len(before)
        (words,) = self._tokenizer.words([text], room)
        places = _places(words, entities)
        spans, whole = fitted(
            words.sizes.tolist(), self._shape.words, room, OVERLAP, self._spec, options.overflow
        )
        windows = tuple(
            self._window(words, span, places, before, sizes) for span in spans if len(entities) > 1
        )
        windows = tuple(window for window in windows if len(window.pairs))
        cost = sum(len(window.ids) for window in windows)
        read = int(words.starts[spans[-1].end]) + len(before) + len(self._before) + len(self._after)
        job = RelationsJob(entities, windows, wanted, len(sizes))
        usage = Usage(input_tokens=read, truncated=int(not whole))
        return Prepared(max(1, cost), job, len(text) + 24 * cost + 64 * len(entities), usage)

    def _window(
        self,
        words: Words,
        span: Span,
        places: Sequence[tuple[int, int]],
        before: Ids,
        sizes: NDArray[np.int32],
    ) -> Window:
        held = [n for n, (first, last) in enumerate(places) if span.start <= first and last < span.end]
        own = [(places[n][0] - span.start, places[n][1] - span.start) for n in held]
        starts = words.starts
        lengths = np.concatenate([sizes, words.sizes[span.start : span.end]]).astype(np.int64)
        body = words.ids[starts[span.start] : starts[span.end]]
        ids = np.concatenate([self._before, before, body, self._after]).astype(np.int32)
        ends = len(self._before) + np.concatenate([[0], np.cumsum(lengths)])
        return Window(ids, ends, np.array(own, np.int64).reshape(-1, 2), tuple(held), self._pairs(own))

    def _pairs(self, places: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
        """As the library pairs them: an earlier entity with every later one, and the other way round those
        that are near."""
        most = self._shape.distance
        found = [
            (head, tail)
            for head in range(len(places))
            for tail in range(len(places))
            if head < tail
            or (head > tail and (most is None or abs(places[head][0] - places[tail][0]) <= most))
        ]
        return np.array(found, np.int64).reshape(-1, 2)


def _given(item: Item, text: str) -> tuple[Entity, ...]:
    """The entities that came with an item. Raises InvalidInput."""
    given = item.metadata.get("entities")
    if not isinstance(given, list | tuple):
        raise InvalidInput(
            "This model finds relations between entities that are given: metadata.entities is a list of "
            "{start, end}, as any extraction of entities answers."
        )
    if len(given) > ENTITIES:
        raise InvalidInput(
            f"The item has {len(given)} entities; every pair is judged, and {ENTITIES} are taken."
        )
    return tuple(_entity(each, text) for each in given)


def _entity(given: Any, text: str) -> Entity:
    said = given if isinstance(given, Mapping) else {}
    start, end = (_whole(said.get(name)) for name in ("start", "end"))
    if not 0 <= start < end <= len(text):
        raise InvalidInput(f"An entity has a start and an end in the text's {len(text)} characters.")
    score = chance(said.get("score", 1.0), "An entity's score")
    label = said.get("label")
    named = "" if label is None else checked(label, "An entity's label")
    return Entity(text[start:end], named, score, start, end)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _places(words: Words, entities: Sequence[Entity]) -> list[tuple[int, int]]:
    """First and last word that each entity touches. Raises InvalidInput where it touches none."""
    found = []
    for start, end in ((entity.start or 0, entity.end or 0) for entity in entities):
        first = int(np.searchsorted(words.offsets[:, 1], start, "right"))
        last = int(np.searchsorted(words.offsets[:, 0], end, "left")) - 1
        if last < first:
            raise InvalidInput(f"The entity from {start} to {end} holds no word.")
        found.append((first, last))
    return found


def _split(text: str) -> Iterator[tuple[str, int, int]]:
    return ((match.group(), match.start(), match.end()) for match in _WORD.finditer(text))
