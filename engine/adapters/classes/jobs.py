"""Texts and labels as jobs for a GLiClass: sequences, windows of long ones, and what is read beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Encoding, Tokenizer

from engine.adapters.classes.directory import LABELS_APART, MARKERS, PROMPT_APART, Directory, Form
from engine.adapters.family import Prepared
from engine.adapters.forward.packed import Ids
from engine.adapters.labelling.open_labels import OpenLabels, Thresholds, Wanted, fits, flag
from engine.adapters.preparing.kinds import each_text
from engine.adapters.preparing.named import named_tokenizer
from engine.adapters.preparing.tokens import TextTokenizer, encoder_tokens, max_tokens
from engine.adapters.preparing.windows import fit
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import ExtractOptions, Item, Options, Task, Usage

THRESHOLD = 0.5
MAX_TOKENS = 1024
"""What the reference pipeline cuts its input to, where the entry does not say."""
OVERLAP = 64


@dataclass(frozen=True, slots=True)
class Window:
    """Part of a text, as the model reads it."""

    ids: Ids
    labels: int
    beside: tuple[Ids, ...]
    """Each label, or all of them as one prompt, where the model reads them apart."""


@dataclass(frozen=True, slots=True)
class ClassesJob:
    """One text; `lengths` are the tokens of the text in each window."""

    windows: tuple[Window, ...]
    lengths: tuple[int, ...]
    wanted: Wanted
    multi_label: bool


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request, as far as it is the same for all of its items."""

    form: Form
    beside: tuple[Ids, ...]
    wanted: Wanted
    multi: bool
    options: ExtractOptions


class ClassesPreparer:
    """Tokenises labels and text together where the model reads them so, and lays windows."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        directory = Directory(path)
        self._spec = spec
        self._directory = directory
        self._labels = OpenLabels(spec)
        self._tokenizer = TextTokenizer(path)
        self.cutter = self._tokenizer.cutter
        self._frame = self._tokenizer.single if directory.framed else self._tokenizer.bare
        limited = spec if spec.max_tokens else spec.model_copy(update={"max_tokens": MAX_TOKENS})
        self._room = encoder_tokens(limited, directory.encoder, MAX_TOKENS) - self._frame.length
        self._vocabulary = int(directory.config.vocab_size)
        self._of_labels, self._most_of_label = _labels_tokenizer(spec, directory)

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        if task is not Task.EXTRACT or not isinstance(options, ExtractOptions):
            raise InvalidInput(f"This model finds labels of texts; it cannot {task}.")
        asked = self._ask(options)
        before, after = asked.form.before, asked.form.after
        return each_text(
            items,
            lambda texts: self._tokenizer.encodings([f"{before}{text}{after}" for text in texts]),
            lambda text, encoding, index: self._one(text, encoding, asked, index),
        )

    def _ask(self, options: ExtractOptions) -> _Asked:
        if options.output_schema is not None:
            raise InvalidInput("This model takes labels and cannot follow an output_schema.")
        wanted = self._labels.choose(options.labels, Thresholds.of(self._spec, options, THRESHOLD))
        instruction = options.instruction or ""
        _no_markers("A label or the instruction", "".join([*wanted.prompts, instruction]))
        form = self._directory.form(wanted.prompts, instruction)
        (prompt,) = self._tokenizer.ids([form.before + form.after])  # once, before it stands beside each text
        self._room_beside(len(prompt))
        multi = flag(self._spec, options, "multi_label", True)
        return _Asked(form, self._beside(form), wanted, multi, options)

    def _beside(self, form: Form) -> tuple[Ids, ...]:
        """Raises InputTooLong for a label, or a prompt of labels, that the model cannot read at once."""
        read = tuple(np.array(e.ids, np.int32) for e in self._of_labels.encode_batch(list(form.beside)))
        fits(read, self._most_of_label, self._spec.id)
        return read

    def _room_beside(self, prompt: int) -> int:
        """Tokens of a text beside a prompt of so many. Raises InputTooLong when too few are left."""
        if self._room - prompt < self._room // 4:
            raise InputTooLong(
                f"The labels take {prompt} tokens; of the {self._room} that {self._spec.id} reads at once "
                f"{self._room - self._room // 4} are for them. Ask for fewer at once.",
                length=prompt,
                max_length=self._room - self._room // 4,
            )
        return self._room - prompt

    def _one(self, text: str, encoding: Encoding, asked: _Asked, index: int) -> Prepared | EngineError:
        ids = np.array(encoding.ids, np.int32)
        before, read, after = _divided(ids, encoding, len(asked.form.before), len(text))
        try:
            room = self._room_beside(len(before) + len(after))
            _no_markers("The text", text)
            spans = fit(len(read), room, min(OVERLAP, room // 4), self._spec, asked.options.overflow)
        except EngineError as error:
            return error.at(index)
        if len(ids) and int(ids.max()) >= self._vocabulary:
            return InvalidInput(f"item {index} holds a token that the model does not have", item=index)
        parts = [np.concatenate([before, read[span.start : span.end], after]) for span in spans]
        windows = tuple(Window(self._frame.fill(part).ids, len(asked.wanted), asked.beside) for part in parts)
        if not len(windows[0].ids):
            return InvalidInput(f"item {index} has no tokens", item=index)
        prompt = 0 if self._directory.architecture in LABELS_APART else sum(map(len, asked.beside))
        cost = sum(len(window.ids) + prompt for window in windows)
        lengths = tuple(max(1, len(span)) for span in spans)
        usage = Usage(input_tokens=cost, truncated=int(spans[-1].end < len(read)))
        return Prepared(cost, ClassesJob(windows, lengths, asked.wanted, asked.multi), 4 * cost, usage)


def _divided(ids: Ids, encoding: Encoding, lead: int, length: int) -> tuple[Ids, Ids, Ids]:
    """The tokens before a text, its own, and those behind it."""
    ends = np.array([end for _, end in encoding.offsets], np.int64)
    first = int(np.searchsorted(ends, lead, "right")) if lead else 0
    last = int(np.searchsorted(ends, lead + length, "right"))
    return ids[:first], ids[first:last], ids[last:]


def _labels_tokenizer(spec: ModelSpec, directory: Directory) -> tuple[Tokenizer, int]:
    """Of what is read beside texts, and how many tokens of it are read at once, special ones included."""
    if directory.architecture in LABELS_APART:
        path, config = directory.path, directory.config
        tokenizer = named_tokenizer(
            path / "labels_tokenizer", path / "labels_encoder", config.label_model_name
        )
        # an entry's max_tokens is about texts
        unsaid = spec.model_copy(update={"max_tokens": None})
        return tokenizer, encoder_tokens(unsaid, config.label_model_config, MAX_TOKENS)
    tokenizer = named_tokenizer(directory.path, directory.path, str(directory.path))
    most = spec.max_tokens or MAX_TOKENS
    if directory.architecture in PROMPT_APART:
        most = max_tokens(spec.model_copy(update={"max_tokens": most}), directory.encoder.to_dict())
    return tokenizer, most


def _no_markers(what: str, text: str) -> None:
    if strange := [marker for marker in MARKERS if marker in text]:
        raise InvalidInput(f"{what} holds {strange[0]}, one of the model's own markers; leave it out.")
