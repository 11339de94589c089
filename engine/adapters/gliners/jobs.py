"""Texts and labels as jobs for a GLiNER: words, windows of them, and the prompt in front of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.adapters.family import Prepared
from engine.adapters.forward.packed import Ids
from engine.adapters.gliners.directory import Directory
from engine.adapters.labelling.open_labels import (
    MAX_LABEL,
    OpenLabels,
    Thresholds,
    Wanted,
    fits,
    flag,
    names,
    no_arrays,
    number,
)
from engine.adapters.preparing.cutting import Cutter
from engine.adapters.preparing.kinds import each_text
from engine.adapters.preparing.tokens import encoder_tokens
from engine.adapters.preparing.windows import Span, fitted, owned
from engine.adapters.preparing.words import Words, WordTokenizer
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import ExtractOptions, Item, Options, Overflow, Task, Usage

THRESHOLD = 0.5
OVERLAP = 64
"""Words that neighbouring windows share at least, where spans are told by their tokens."""
LABELS_FROM_SCHEMA = ("entities", "relations")


@dataclass(frozen=True, slots=True)
class Window:
    """Some words of a text behind their prompt, as the encoder reads them."""

    ids: Ids
    tokens: NDArray[np.int64]
    """Places in `ids` of the tokens that stand for words."""
    words: NDArray[np.int64]
    """The word of each, from 0 in this window."""
    span: Span
    owned: Span


@dataclass(frozen=True, slots=True)
class Prompt:
    """What stands in front of every window: its tokens, and the places of those that stand for labels."""

    ids: tuple[int, ...] = ()
    labels: tuple[int, ...] = ()
    relations: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SpanJob:
    text: str
    words: NDArray[np.int32]
    windows: tuple[Window, ...]
    prompt: Prompt
    wanted: Wanted
    relations: Wanted
    label_ids: tuple[Ids, ...]
    """Bi-encoders: the tokens of each label, for the encoder of labels."""
    flat: bool
    multi_label: bool
    joined: bool
    """Entities of a label that stand beside each other are one."""
    adjacent: float
    """Relations: the least chance that two spans have to do with each other."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request's labels, as far as they are the same for all of its items."""

    prompt: Prompt
    wanted: Wanted
    relations: Wanted
    label_ids: tuple[Ids, ...]
    flat: bool
    multi_label: bool
    joined: bool
    adjacent: float
    overflow: Overflow


NOTHING = Wanted((), (), ())


class SpanPreparer:
    """Splits into words, tokenises them, and lays windows."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        self._spec = spec
        self._directory = Directory(path)
        config = self._directory.config
        tokenizer = self._directory.tokenizer()
        self.cutter = Cutter(tokenizer)
        self._labels = OpenLabels(spec)
        self._tokenizer = WordTokenizer(tokenizer, self._directory.splitter())
        around = tokenizer.encode([], is_pretokenized=True)
        end = next((i for i, name in enumerate(around.tokens) if name not in _BEGINNINGS), 1)
        self._before, self._after = tuple(around.ids[:end]), tuple(around.ids[end:])
        self._vocabulary = int(config.encoder_config.vocab_size)
        self._room = encoder_tokens(spec, config.encoder_config, 8 * int(config.max_len)) - len(around.ids)
        self._words = int(config.max_len)
        widest = OVERLAP if self._directory.token_level else 4 * int(config.max_width)
        self._overlap = min(max(widest, OVERLAP), self._words // 4)
        if self._directory.bi_encoder:
            self._of_labels = self._directory.labels_tokenizer()
            # an entry's max_tokens is about texts
            unsaid = spec.model_copy(update={"max_tokens": None})
            self._most_of_label = encoder_tokens(unsaid, config.labels_encoder_config, MAX_LABEL)
        else:
            self._ent = self._directory.marker(tokenizer, config.ent_token, config.class_token_index)

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        if task is not Task.EXTRACT or not isinstance(options, ExtractOptions):
            raise InvalidInput(f"This model finds labels in texts; it cannot {task}.")
        asked = self._ask(options)
        return each_text(
            items,
            lambda texts: self._tokenizer.words(texts, self._room - len(asked.prompt.ids)),
            lambda text, words, index: self._one(text, words, asked, index),
        )

    def _ask(self, options: ExtractOptions) -> _Asked:
        if options.instruction is not None:
            raise InvalidInput("This model finds labels and cannot follow an instruction.")
        no_arrays(options.output_schema, "output_schema")
        no_arrays(options.extra, "options")
        schema = options.output_schema or {}
        if strange := sorted(set(schema) - set(LABELS_FROM_SCHEMA)):
            raise InvalidInput(
                f"output_schema.{strange[0][:100]} is not known to this model; it takes entities and "
                "relations."
            )
        thresholds = Thresholds.of(self._spec, options, THRESHOLD)
        entities = schema.get("entities", options.labels)
        if not isinstance(entities, Mapping):
            entities = names(entities, "output_schema.entities")
        wanted = self._labels.choose(entities, thresholds)
        relations = self._relations(
            schema.get("relations", options.extra.get("relations")), options, thresholds
        )
        prompt = Prompt() if self._directory.bi_encoder else self._prompt(wanted, relations)
        if len(prompt.ids) > self._room // 2:
            raise InputTooLong(
                f"The labels take {len(prompt.ids)} tokens; {self._spec.id} reads at most {self._room // 2} "
                "beside a text. Ask for fewer at once.",
                length=len(prompt.ids),
                max_length=self._room // 2,
            )
        return _Asked(
            prompt,
            wanted,
            relations,
            self._label_ids(wanted),
            flag(self._spec, options, "flat_ner", True),
            flag(self._spec, options, "multi_label", False),
            flag(self._spec, options, "merge_adjacent", False),
            number(self._spec, options, "adjacency_threshold", thresholds.common),
            options.overflow,
        )

    def _relations(self, asked: object, options: ExtractOptions, thresholds: Thresholds) -> Wanted:
        listed = () if asked is None else names(asked, "relations")
        if not self._directory.relations:
            if listed:
                raise InvalidInput(f"{self._spec.id} finds entities, and no relations between them.")
            return NOTHING
        listed = listed or tuple(self._spec.options.get("relations") or ())
        if not listed:
            return NOTHING
        least = number(self._spec, options, "relation_threshold", thresholds.common)
        return self._labels.choose(listed, Thresholds(least, thresholds.own))

    def _prompt(self, wanted: Wanted, relations: Wanted) -> Prompt:
        config = self._directory.config
        words: list[str] = []
        for label in wanted.prompts:
            words += [config.ent_token, label]
        if self._directory.relations:
            words.append(config.sep_token)
            for label in relations.prompts:
                words += [config.rel_token, label]
        ids = self._tokenizer.ids([*words, config.sep_token])
        rel = config.rel_token_index if self._directory.relations else -1
        marks = np.array(ids)
        shown = [
            (np.flatnonzero(marks == marker) + (not embed)).tolist()
            for marker, embed in ((self._ent, config.embed_ent_token), (rel, _embeds_relations(config)))
        ]
        if len(shown[0]) != len(wanted) or len(shown[1]) != len(relations):
            raise InvalidInput("A label holds one of the model's own markers; leave it out.")
        lead = len(self._before)
        labels, related = (tuple(lead + place for place in places) for places in shown)
        return Prompt(tuple(ids), labels, related)

    def _label_ids(self, wanted: Wanted) -> tuple[Ids, ...]:
        """Raises InputTooLong for a label that its encoder cannot read."""
        if not self._directory.bi_encoder:
            return ()
        read = [np.array(e.ids, np.int32) for e in self._of_labels.encode_batch(list(wanted.prompts))]
        fits(read, self._most_of_label, self._spec.id)
        return tuple(read)

    def _one(self, text: str, words: Words, asked: _Asked, index: int) -> Prepared | EngineError:
        try:
            spans, whole = self._spans(words, asked)
        except EngineError as error:
            return error.at(index)
        if len(words.ids) and int(words.ids.max()) >= self._vocabulary:
            return InvalidInput(f"item {index} holds a token that the model does not have", item=index)
        windows = tuple(
            self._window(words, span, own, asked.prompt)
            for span, own in zip(spans, owned(spans), strict=True)
            if len(span)
        )
        read = spans[-1].end
        cost = sum(len(window.ids) for window in windows)
        job = SpanJob(
            text,
            words.offsets[:read],
            windows,
            asked.prompt,
            asked.wanted,
            asked.relations,
            asked.label_ids,
            asked.flat,
            asked.multi_label,
            asked.joined,
            asked.adjacent,
        )
        tokens = int(words.starts[read]) + len(asked.prompt.ids) + len(self._before) + len(self._after)
        usage = Usage(input_tokens=tokens, truncated=int(not whole))
        return Prepared(max(1, cost), job, len(text) + 8 * read + 28 * cost, usage)

    def _spans(self, words: Words, asked: _Asked) -> tuple[list[Span], bool]:
        room = self._room - len(asked.prompt.ids)
        return fitted(words.sizes.tolist(), self._words, room, self._overlap, self._spec, asked.overflow)

    def _window(self, words: Words, span: Span, own: Span, prompt: Prompt) -> Window:
        starts = words.starts
        body = words.ids[starts[span.start] : starts[span.end]]
        lead = len(self._before) + len(prompt.ids)
        ids = np.concatenate([self._before, prompt.ids, body, self._after]).astype(np.int32)
        sizes = words.sizes[span.start : span.end]
        first = starts[span.start : span.end] - starts[span.start]
        match getattr(self._directory.config, "subtoken_pooling", "first"):
            case "first":
                tokens, of = first, np.arange(len(span))
            case "last":
                tokens, of = first + sizes - 1, np.arange(len(span))
            case _:
                tokens, of = np.arange(len(body)), np.repeat(np.arange(len(span)), sizes)
        real = np.repeat(True, len(of)) if len(of) != len(span) else sizes > 0
        return Window(ids, lead + tokens[real], of[real], span, own)


_BEGINNINGS = frozenset(["[CLS]", "<s>", "<bos>", "<cls>"])


def _embeds_relations(config: object) -> bool:
    return bool(getattr(config, "embed_rel_token", True))
