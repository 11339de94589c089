"""Named entities by a spaCy pipeline. spaCy gives no scores: every entity that it names has 1.0.

Runs on the CPU, in one slot at a time: a loaded pipeline is not safe under concurrent use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, cast

import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import load_config

from engine.adapters.family import Footprint, Prepared
from engine.adapters.labelling.labels import Chosen, Labels
from engine.adapters.preparing.kinds import extract_options, only_text
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput
from engine.requests import Entity, Extracted, Item, Options, Task, Usage

PIECE = 4000
"""Code points of text that go through the pipeline at once; longer texts go in overlapping pieces."""
OVERLAP = 400
LONGEST_RUN = 100
_LONG_RUN = re.compile(rf"\S{{{LONGEST_RUN}}}(?=\S)")
PIECES_AT_ONCE = 4

OBJECTS_BYTES = 32 << 20
"""What a pipeline takes beside its files' own bytes: measured, 37 MB for the 7 MB that
en_core_web_sm needs for entities."""
WORKSPACE_BYTES = 64 << 20
"""Measured 16 kB a token; four pieces at once hold about 3,600 tokens of English."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a text; it answers for the entities that begin from `first` up to `last`."""

    text: str
    start: int
    first: int
    last: int


def pieces(text: str, most: int = PIECE, overlap: int = OVERLAP) -> list[Piece]:
    """Overlapping parts of at most `most` code points that together answer for every place once.

    They begin and end at white space where there is some, so that no word is cut.
    """
    if len(text) <= most:
        return [Piece(text, 0, 0, len(text))]
    spans, start = [], 0
    while True:
        end = min(start + most, len(text))
        end = end if end == len(text) else _space(text, end, start + most - overlap // 2)
        spans.append((start, end))
        if end == len(text):
            break
        start = _space(text, end - overlap, end - 2 * overlap)
    borders = [0, *((a[1] + b[0]) // 2 for a, b in pairwise(spans)), len(text)]
    return [Piece(text[start:end], start, borders[i], borders[i + 1]) for i, (start, end) in enumerate(spans)]


def _space(text: str, at: int, least: int) -> int:
    """The last place up to `at`, not before `least`, just behind white space; else `at`."""
    return next((i for i in range(at, max(least, 1) - 1, -1) if text[i - 1].isspace()), at)


class SpacyNer:
    """Family `spacy_ner`: a directory that `spacy.load` takes, with a component called ner."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        """Declared from the sizes of the files that are loaded; the bytes in memory are not in them."""
        unused = [path / name for name in _unused(path)]
        read = (f for f in path.rglob("*") if f.is_file() and not any(f.is_relative_to(u) for u in unused))
        return Footprint(sum(f.stat().st_size for f in read) + OBJECTS_BYTES, WORKSPACE_BYTES, 400.0)

    def preparer(self, spec: ModelSpec, path: Path) -> SpacyPreparer:
        return SpacyPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> SpacyModel:
        return SpacyModel(spacy.load(path, exclude=_unused(path)))


class Bounded:
    """spaCy's tokenizer, given no more than LONGEST_RUN code points without white space at once.

    It takes prefixes and suffixes off one by one, in time that is quadratic in a run of them, and holds
    the interpreter all the while. What is cut is put together again, so offsets are those of the text.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> Doc:
        cuts = [0, *(run.end() for run in _LONG_RUN.finditer(text)), len(text)]
        if len(cuts) == 2:
            return cast(Doc, self._tokenizer(text))
        tokens = [token for start, end in pairwise(cuts) for token in self._tokenizer(text[start:end])]
        words, spaces = [t.text for t in tokens], [bool(t.whitespace_) for t in tokens]
        return Doc(self._tokenizer.vocab, words=words, spaces=spaces)


class SpacyPreparer:
    """The pipeline's own tokenizer, without the pipeline, counts what a text costs."""

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        meta = json.loads((path / "meta.json").read_text("utf-8"))
        self._labels = Labels(spec.id, meta["labels"]["ner"], spec.labels)
        self._tokenizer = spacy.blank(meta["lang"])
        cast(Any, self._tokenizer.tokenizer).from_disk(path / "tokenizer")
        cast(Any, self._tokenizer).tokenizer = Bounded(self._tokenizer.tokenizer)
        self._lock = Lock()  # the tokenizer's cache is shared, and preparers run in several threads

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        asked = self._labels.choose(extract_options(task, options).labels)
        return [self._one(item, asked, at) for at, item in enumerate(items)]

    def _one(self, item: Item, asked: Chosen, at: int) -> Prepared | EngineError:
        try:
            text = only_text(item)
        except InvalidInput as error:
            return error.at(at)
        tokens = self._tokens(text)
        return Prepared(max(1, tokens), (text, asked), len(text.encode()), Usage(input_tokens=tokens))

    def _tokens(self, text: str) -> int:
        """Counted in parts, so that the interpreter is held for a few milliseconds at most."""
        total = 0
        for start in range(0, len(text), PIECE):
            with self._lock, self._tokenizer.memory_zone():
                total += len(self._tokenizer.make_doc(text[start : start + PIECE]))
        return total


class SpacyModel:
    """A loaded pipeline, cut down to what finds entities."""

    def __init__(self, pipeline: Language) -> None:
        self._pipeline = pipeline
        cast(Any, pipeline).tokenizer = Bounded(pipeline.tokenizer)

    def run(self, jobs: Sequence[Prepared]) -> list[Extracted | EngineError]:
        parts = [
            (job, piece) for job, (text, _) in enumerate(j.payload for j in jobs) for piece in pieces(text)
        ]
        found: list[list[Entity]] = [[] for _ in jobs]
        # Without the zone spaCy keeps every new word for ever.
        with self._pipeline.memory_zone():
            docs = self._pipeline.pipe((piece.text for _, piece in parts), batch_size=PIECES_AT_ONCE)
            for (job, piece), doc in zip(parts, docs, strict=True):
                _gather(found[job], piece, doc, *jobs[job].payload)
        return [Extracted(entities=tuple(entities)) for entities in found]

    def unload(self) -> None:
        del self._pipeline


def _gather(found: list[Entity], piece: Piece, doc: Doc, text: str, asked: Chosen) -> None:
    """Add what this piece answers for; what the piece before already named across the border is not."""
    done = found[-1].end or 0 if found else 0
    for span in doc.ents:
        start, end = piece.start + span.start_char, piece.start + span.end_char
        label = asked.name(span.label_)
        if label is None or start < done or not piece.first <= start < piece.last:
            continue
        found.append(Entity(text[start:end], label, 1.0, start, end))


def _unused(path: Path) -> list[str]:
    """Components that entities do not need: all but ner, and its token vectors where it has none itself."""
    config = load_config(path / "config.cfg")
    needed = {"ner"}
    if "Listener" in str(config["components"]["ner"]):
        needed |= {"tok2vec", "transformer"}
    return [name for name in config["nlp"]["pipeline"] if name not in needed]


FAMILY = SpacyNer()
