"""Texts and schemas as jobs for a GLiNER2: the schema in front, words behind it, in windows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gliner2.processing.word_splitter import WhitespaceTokenSplitter
from numpy.typing import NDArray

from engine.adapters.family import Prepared
from engine.adapters.forward.packed import Ids
from engine.adapters.labelling.open_labels import flag
from engine.adapters.preparing.cutting import Cutter
from engine.adapters.preparing.kinds import each_text
from engine.adapters.preparing.tokens import encoder_tokens
from engine.adapters.preparing.windows import Span, fitted, owned
from engine.adapters.preparing.words import Words, WordTokenizer
from engine.adapters.schemas.asking import Asking
from engine.adapters.schemas.directory import BOUNDARY, Directory
from engine.adapters.schemas.questions import SEPARATOR, TEXT, Kind, Question, choices_read
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import ExtractOptions, Item, Options, Overflow, Task, Usage

WORDS = 384
"""Of a text, in one window: what the library's functions for long texts take."""
OVERLAP = 64
TOKENS = 2048
"""Where neither the encoder nor the entry bounds them."""
STOP = "."
ENDS = (".", "!", "?")
RUN = 256
"""Characters without a space that are split at once: the library's pattern is quadratic in them."""


@dataclass(frozen=True, slots=True)
class Window:
    """Some words of a text behind their schema, as the encoder reads them."""

    ids: Ids
    tokens: NDArray[np.int64]
    """Places in `ids` of the tokens that stand for words: choices, the text, and its full stop."""
    words: NDArray[np.int64]
    """The word of each."""
    count: int
    """Words, with the choices and the full stop."""
    span: Span
    owned: Span


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as far as it is the same for all of its items."""

    questions: tuple[Question, ...]
    marks: tuple[tuple[int, ...], ...]
    """By question, places in a window's `ids` of what stands for it and for its fields."""
    choices: Mapping[str, int]
    """Words before the text, in lower case, and where the first of each stands."""
    lead: int
    """How many words these are."""
    flat: bool
    spans: bool
    """Whether `data` says where its texts stand."""
    overlaps: str | None
    """Which entities of a label stay beside each other, as the library calls it; None: the best go first."""
    overflow: Overflow


@dataclass(frozen=True, slots=True)
class SchemaJob:
    text: str
    words: NDArray[np.int32]
    windows: tuple[Window, ...]
    asked: Asked


def _without(directory: Directory) -> frozenset[Kind]:
    """What a model of the architecture boundary is not asked for."""
    structures = frozenset([Kind.STRUCTURE])
    return structures if directory.settings.enable_relations else structures | {Kind.RELATION}


class SchemaPreparer:
    """Splits into words, tokenises them, and lays windows."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        directory = Directory(path)
        tokenizer = directory.tokenizer()
        self.cutter = Cutter(tokenizer)
        boundary = directory.architecture == BOUNDARY
        self._asking = Asking(spec, _without(directory) if boundary else frozenset())
        self._overlaps = directory.settings.overlap_policy if boundary else None
        self._tokenizer = WordTokenizer(tokenizer, split)
        self._stop, _ = self._tokenizer.sized([STOP])
        self._room = encoder_tokens(spec, directory.encoder, TOKENS) - len(self._stop)
        self._pooling = directory.pooling

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        if task is not Task.EXTRACT or not isinstance(options, ExtractOptions):
            raise InvalidInput(f"This model finds labels and fields in texts; it cannot {task}.")
        asked, before, sizes = self._ask(options)
        return each_text(
            items,
            lambda texts: self._tokenizer.words(texts, self._room - len(before)),
            lambda text, words, index: self._one(text, words, asked, before, sizes, index),
        )

    def _ask(self, options: ExtractOptions) -> tuple[Asked, Ids, NDArray[np.int32]]:
        """Also the tokens before every text, and how many of them each choice word has."""
        questions = self._asking.questions(options)
        words: list[str] = []
        marks: list[list[int]] = []
        for question in questions:
            marks.append([len(words) + mark for mark in question.marks])
            words += [*question.words, SEPARATOR]
        chosen = choices_read(questions)
        ids, sizes = self._tokenizer.sized([*words[:-1], TEXT, *chosen])
        if len(ids) > self._room // 2:
            raise InputTooLong(
                f"The labels and fields take {len(ids)} tokens; {self._spec.id} reads at most "
                f"{self._room // 2} beside a text. Ask for fewer at once.",
                length=len(ids),
                max_length=self._room // 2,
            )
        starts = np.cumsum(sizes) - sizes
        asked = Asked(
            questions,
            tuple(tuple(starts[places].tolist()) for places in marks),
            {word.lower(): place for place, word in reversed(list(enumerate(chosen)))},
            len(chosen),
            flag(self._spec, options, "flat_ner", False),
            flag(self._spec, options, "spans", False),
            self._overlaps,
            options.overflow,
        )
        return asked, ids, sizes[len(words) :]

    def _one(
        self, text: str, words: Words, asked: Asked, before: Ids, sizes: NDArray[np.int32], index: int
    ) -> Prepared | EngineError:
        room = self._room - len(before)
        try:
            spans, whole = fitted(words.sizes.tolist(), WORDS, room, OVERLAP, self._spec, asked.overflow)
        except EngineError as error:
            return error.at(index)
        windows = tuple(
            self._window(text, words, span, own, before, sizes)
            for span, own in zip(spans, owned(spans), strict=True)
        )
        read = spans[-1].end
        cost = sum(len(window.ids) for window in windows)
        tokens = len(before) + int(words.starts[read]) + len(self._stop)
        usage = Usage(input_tokens=tokens, truncated=int(not whole))
        job = SchemaJob(text, words.offsets[:read], windows, asked)
        return Prepared(cost, job, len(text) + 8 * read + 28 * cost, usage)

    def _window(
        self, text: str, words: Words, span: Span, own: Span, before: Ids, sizes: NDArray[np.int32]
    ) -> Window:
        starts = words.starts
        body = words.ids[starts[span.start] : starts[span.end]]
        whole = len(span) == len(words.sizes)
        seen = text if whole else text[: words.offsets[span.end - 1, 1]]
        stop = self._stop[:0] if seen.endswith(ENDS) else self._stop
        ids = np.concatenate([before, body, stop]).astype(np.int32)
        each = np.concatenate([sizes, words.sizes[span.start : span.end], [len(stop)] if len(stop) else []])
        each = each.astype(np.int64)
        first = len(before) - int(sizes.sum()) + np.cumsum(each) - each
        if self._pooling == "first":
            # a word without tokens of its own is read as the one that follows
            tokens, of = np.minimum(first, len(ids) - 1), np.arange(len(each))
        else:
            tokens, of = np.arange(len(ids))[int(first[0]) :], np.repeat(np.arange(len(each)), each)
        return Window(ids, tokens, of, len(each), span, own)


_LONG = re.compile(rf"\S{{{RUN + 1}}}")
_RUNS = re.compile(rf"\S{{1,{RUN}}}")
_split = WhitespaceTokenSplitter()


def split(text: str) -> Iterator[tuple[str, int, int]]:
    """The library's words, in lower case; of a long run without a space those of its parts."""
    if not _LONG.search(text):
        yield from _split(text)
        return
    for run in _RUNS.finditer(text):
        for word, start, end in _split(run.group()):
            yield word, run.start() + start, run.start() + end
