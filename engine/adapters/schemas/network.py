"""GLiNER2's own layers, run on many windows at once: whatever schema each has, and whatever their lengths.

The encoder runs as every encoder here does. Behind it the words of several windows are padded together, and
the fields of all their questions are a dimension beside them, so windows with different schemas share every
forward pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from gliner2 import layers
from gliner2.layers import CountLSTMv2
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.adapters.forward import weights
from engine.adapters.forward.packed import Encoder, Hidden
from engine.adapters.labelling.choosing import Candidate
from engine.adapters.schemas.directory import Directory
from engine.adapters.schemas.jobs import SchemaJob, Window
from engine.adapters.schemas.questions import Kind

MOST = 20
"""Instances of a structure that the model can count to, and one more."""
ROWS = {"cpu": 512, "cuda": 4096}
"""Words, padding included, that are scored at once."""
COUNTERS = {
    "count_lstm": layers.CountLSTM,
    "count_lstm_v2": CountLSTMv2,
    "count_lstm_moe": layers.CountLSTMoE,
}


@dataclass(frozen=True, slots=True)
class Edge:
    """Two spans of a window's text that are related: first and last word of each."""

    score: float
    head: tuple[int, int]
    tail: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the network says of one window, by question: those that it has nothing for are missing."""

    spans: Mapping[int, NDArray[np.float32]]
    """Chances (instances, fields, words, widths): of a span that begins at a word and is a width + 1 long."""
    classes: Mapping[int, NDArray[np.float32]]
    """Logits, one a label."""
    finite: bool
    found: Mapping[int, Sequence[Candidate]] = field(default_factory=dict)
    """Instead of `spans`, by words of the window's text: those whose chances are high enough."""
    edges: Mapping[int, Sequence[Edge]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Row:
    """A question of a window that asks for spans: `vectors` (1 + fields, dim), how many, and its fields'."""

    place: int
    question: int
    vectors: Tensor
    only: bool
    """One instance is all that is asked for."""


class Heads(nn.Module):
    """What stands behind the encoder, by the names of the library's own model."""

    def __init__(self, directory: Directory) -> None:
        super().__init__()
        dim, library = directory.hidden, cast(Any, layers)
        self.span_rep = library.SpanRepLayer(dim, directory.widest, "markerV0", dropout=0.0)
        wide = {"input_dim": dim, "intermediate_dims": [2 * dim], "dropout": 0.0, "activation": "relu"}
        self.classifier = library.create_mlp(**wide, output_dim=1)
        self.count_pred = library.create_mlp(**wide, output_dim=MOST)
        self.count_embed = cast(Any, COUNTERS[directory.counting])(dim)


def heads(directory: Directory) -> Heads:
    """Without memory for their weights."""
    return weights.skeleton(lambda: Heads(directory))


class Network:
    """Threads may share it."""

    def __init__(self, directory: Directory, encoder: PreTrainedModel, heads: Heads) -> None:
        self.module = nn.ModuleList([encoder, heads])
        self._heads = heads
        self._encoder = Encoder(encoder)
        self._reduce = directory.reduce
        kind = next(encoder.parameters()).device.type
        self._rows = ROWS.get(kind, ROWS["cpu"])

    def see(self, jobs: Sequence[SchemaJob]) -> list[list[Seen]]:
        """For each job what its windows hold, in order."""
        windows = [(job, window) for job in jobs for window in job.windows]
        with torch.inference_mode():
            hidden = self._encoder.hidden([window.ids for _, window in windows])
            classes = logits_of_classes(self._heads.classifier, hidden, windows)
            rows = self._asked(hidden, windows)
            counts, finite = self._counts(rows)
            queries = self._queries(rows, counts)
            chances = self._scored(hidden, [window for _, window in windows], queries)
        found = []
        for place in range(len(windows)):
            spans, said = chances.get(place, {}), classes.get(place, {})
            known = all(np.isfinite(row).all() for row in [*spans.values(), *said.values()])
            found.append(Seen(spans, said, known and finite[place]))
        left = iter(found)
        return [[next(left) for _ in job.windows] for job in jobs]

    def _asked(self, hidden: Hidden, windows: Sequence[tuple[SchemaJob, Window]]) -> list[_Row]:
        """Questions that ask for spans."""
        return [
            _Row(place, number, hidden.of(place)[list(marks)], question.kind is Kind.ENTITIES)
            for place, (job, _) in enumerate(windows)
            for number, (question, marks) in enumerate(zip(job.asked.questions, job.asked.marks, strict=True))
            if question.kind is not Kind.CLASSES
        ]

    def _counts(self, rows: Sequence[_Row]) -> tuple[list[int], dict[int, bool]]:
        """How many instances of each question there are, and by window whether that was a number."""
        finite: dict[int, bool] = defaultdict(lambda: True)
        if not rows:
            return [], finite
        logits = self._heads.count_pred(torch.stack([row.vectors[0] for row in rows]))
        counts = logits.argmax(-1).tolist()
        for row, good in zip(rows, logits.isfinite().all(-1).tolist(), strict=True):
            finite[row.place] = finite[row.place] and good
        return [min(count, 1) if row.only else count for row, count in zip(rows, counts, strict=True)], finite

    def _queries(self, rows: Sequence[_Row], counts: Sequence[int]) -> dict[tuple[int, int], Tensor]:
        """By window and question (instances, fields, dim). Those with as many fields go together.

        An instance does not depend on those after it, so that all may be made as often as the one with most.
        """
        alike: dict[int, list[tuple[_Row, int]]] = defaultdict(list)
        for row, count in zip(rows, counts, strict=True):
            if count:
                alike[len(row.vectors) - 1].append((row, count))
        found = {}
        for fields, group in alike.items():
            vectors = torch.stack([row.vectors[1:] for row, _ in group])
            made = self._instances(vectors, max(count for _, count in group))
            for number, (row, count) in enumerate(group):
                found[row.place, row.question] = made[:count, number]
            assert made.shape[2] == fields
        return found

    def _instances(self, fields: Tensor, most: int) -> Tensor:
        """(most, questions, fields, dim) of (questions, fields, dim)."""
        embed = cast(Any, self._heads.count_embed)
        flat = fields.flatten(0, 1)
        if not isinstance(embed, CountLSTMv2):  # the others look at one field alone
            found: Tensor = embed(flat, most)
            return found.view(-1, *fields.shape)
        steps = embed.pos_embedding.weight[:most, None].expand(-1, len(flat), -1)
        made: Tensor = embed.transformer((embed.gru(steps, flat) + flat).view(-1, *fields.shape[1:]))
        return made.view(-1, *fields.shape)

    def _scored(
        self, hidden: Hidden, windows: Sequence[Window], queries: Mapping[tuple[int, int], Tensor]
    ) -> dict[int, dict[int, NDArray[np.float32]]]:
        by_place: dict[int, list[tuple[int, Tensor]]] = defaultdict(list)
        for (place, question), vectors in queries.items():
            by_place[place].append((question, vectors))
        found: dict[int, dict[int, NDArray[np.float32]]] = defaultdict(dict)
        for places in self._divided(windows, list(by_place)):
            flat = [torch.cat([vectors.flatten(0, 1) for _, vectors in by_place[at]]) for at in places]
            chances = self._chances(hidden, [windows[at] for at in places], places, flat)
            for at, rows in zip(places, chances, strict=True):
                first = 0
                for question, vectors in by_place[at]:
                    last = first + vectors.shape[0] * vectors.shape[1]
                    shape = (*vectors.shape[:2], *rows.shape[1:])
                    found[at][question] = rows[first:last].reshape(shape)
                    first = last
        return found

    def _divided(self, windows: Sequence[Window], places: Sequence[int]) -> Iterator[list[int]]:
        """Windows that are scored together; the longest sets the width."""
        part: list[int] = []
        for place in sorted(places, key=lambda place: windows[place].count):
            if part and windows[place].count * (len(part) + 1) > self._rows:
                yield part
                part = []
            part.append(place)
        if part:
            yield part

    def _chances(
        self, hidden: Hidden, windows: Sequence[Window], places: Sequence[int], queries: Sequence[Tensor]
    ) -> list[NDArray[np.float32]]:
        """(queries, words, widths) of each window."""
        counts = [window.count for window in windows]
        states, device = hidden.states, hidden.states.device
        words = words_of(hidden, windows, places, self._reduce)
        asked = states.new_zeros(len(windows), max(map(len, queries)), states.shape[1])
        for row, vectors in enumerate(queries):
            asked[row, : len(vectors)] = vectors
        lengths = torch.tensor(counts, device=device)
        chances = self._heads.span_rep.score_queries(words, asked, lengths).float().sigmoid().cpu().numpy()
        return [
            chances[row, : len(vectors), :count]
            for row, (vectors, count) in enumerate(zip(queries, counts, strict=True))
        ]


def logits_of_classes(
    classifier: nn.Module, hidden: Hidden, windows: Sequence[tuple[SchemaJob, Window]]
) -> dict[int, dict[int, NDArray[np.float32]]]:
    """By window and question, of those that ask for classes."""
    judged = [
        (place, number, hidden.of(place)[list(marks[1:])])
        for place, (job, _) in enumerate(windows)
        for number, (question, marks) in enumerate(zip(job.asked.questions, job.asked.marks, strict=True))
        if question.kind is Kind.CLASSES
    ]
    classes: dict[int, dict[int, NDArray[np.float32]]] = defaultdict(dict)
    if judged:
        logits = classifier(torch.cat([vectors for *_, vectors in judged]))
        parts = logits[:, 0].split([len(vectors) for *_, vectors in judged])
        for (place, number, _), part in zip(judged, parts, strict=True):
            classes[place][number] = part.float().cpu().numpy()
    return classes


def words_of(hidden: Hidden, windows: Sequence[Window], places: Sequence[int], reduce: str | None) -> Tensor:
    """(windows, words, dim): a word as its first token, or as what `reduce` makes of all."""
    states, device = hidden.states, hidden.states.device
    most = max(window.count for window in windows)
    words = states.new_zeros(len(windows), most, states.shape[1])
    for row, (window, place) in enumerate(zip(windows, places, strict=True)):
        of = torch.from_numpy(window.words).to(device)
        tokens = hidden.of(place)[torch.from_numpy(window.tokens).to(device)]
        if reduce is None:
            words[row, of] = tokens
        else:
            words[row].scatter_reduce_(0, of[:, None].expand_as(tokens), tokens, reduce, include_self=False)
    return words
