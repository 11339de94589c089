"""GLiNER's own modules, run on many windows at once: whatever labels each has, and whatever their lengths.

The encoder runs as every encoder here does (packed, or in buckets of similar length). Behind it the words
of several windows are padded together, in GLiNER's own layers; labels are beside them as a dimension of their
own, so windows with different labels share every forward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from gliner.modeling.utils import (  # type: ignore[import-untyped]
    build_all_entity_pairs,
    build_entity_pairs,
)
from numpy.typing import NDArray
from torch import Tensor, nn

from engine.adapters.forward import linear
from engine.adapters.forward.packed import Encoder, Hidden, Ids
from engine.adapters.forward.pooling import pool
from engine.adapters.gliners.directory import Directory
from engine.adapters.gliners.jobs import SpanJob, Window
from engine.adapters.labelling.kept import LabelVectors

PADDABLE = frozenset(["marker", "markerV0", "token_level"])
"""Ways to represent a span that do not look beyond its own words; others run on windows of one length."""
ROWS = {"cpu": 512, "cuda": 4096}
"""Words, padding included, that go through the layers behind the encoder at once."""
LABELS = 25
"""That each of these words meets at once where spans are told by their tokens."""


@dataclass(frozen=True, slots=True)
class Part:
    """Windows that go through the layers behind the encoder together; the longest sets the width."""

    places: Sequence[int]
    words: Tensor
    """(windows, words, dim)."""
    real: Tensor
    """(windows, words): whether there is a word."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the network says of one window: chances that its spans, or tokens, are the labels."""

    chances: NDArray[np.float32]
    words: Tensor
    """(1, words, dim), for relations."""
    labels: Tensor
    """(1, labels, dim), projected."""
    related: Tensor
    """(1, relations, dim)."""


class Network:
    """Threads may share it."""

    def __init__(self, directory: Directory, network: nn.Module) -> None:
        self.module = network
        self._parts = cast(Any, network)
        self._config = directory.config
        self._token_level = directory.token_level
        self._bi_encoder = directory.bi_encoder
        linear.pack(network)
        self._encoder = Encoder(self._parts.token_rep_layer.bert_layer.model)
        if directory.bi_encoder:
            self._of_labels = Encoder(self._parts.token_rep_layer.labels_encoder.model)
        self._known = LabelVectors(self._read)
        """Of bi-encoders."""
        kind = next(network.parameters()).device.type
        self._rows = ROWS.get(kind, ROWS["cpu"])
        context = getattr(directory.config, "span_encoder_config", None)
        self._alike = directory.config.span_mode not in PADDABLE or context is not None

    def see(self, jobs: Sequence[SpanJob]) -> list[list[Seen]]:
        """For each job what its windows hold, in order."""
        windows = [(job, window) for job in jobs for window in job.windows]
        if not windows:
            return [[] for _ in jobs]
        with torch.inference_mode():
            hidden = self._encoder.hidden([window.ids for _, window in windows])
            states = self._projected(hidden, "projection")
            labels = self._labels(jobs) if self._bi_encoder else {}
            seen: dict[int, Seen] = {}
            counts = [len(job.wanted) for job, _ in windows]
            for part in self._divided(states, [window for _, window in windows], counts):
                held = [windows[place][0] for place in part.places]
                vectors = [
                    torch.stack([labels[label] for label in job.wanted.prompts]).to(part.words.device)
                    if self._bi_encoder
                    else states.of(place)[list(job.prompt.labels)]
                    for place, job in zip(part.places, held, strict=True)
                ]
                related = [
                    states.of(place)[list(windows[place][0].prompt.relations)] for place in part.places
                ]
                seen.update(zip(part.places, self._heads(part, vectors, related), strict=True))
        left = iter(range(len(windows)))
        return [[seen[next(left)] for _ in job.windows] for job in jobs]

    def related(
        self, seen: Seen, threshold: float, adjacent: float
    ) -> list[tuple[tuple[int, int], tuple[int, int], NDArray[np.float32]]]:
        """Pairs of spans (first and last word, from 0 in the window) with the chance of each relation.

        Spans are those above `threshold`; pairs, where the model judges that, those above `adjacent`.
        """
        with torch.inference_mode():
            spans, real = (None, None) if self._token_level else self._spans(seen.words.shape[1], 1)
            _, vectors, mask, bounds = self._parts.represent_spans(
                seen.words, torch.ones(seen.words.shape[:2]), seen.labels, spans, real, None, threshold
            )
            if vectors is None or vectors.shape[1] < 2:
                return []
            if hasattr(self.module, "relations_rep_layer"):
                near = self._parts.relations_rep_layer(vectors, mask)
                pairs, there, heads, tails = build_entity_pairs(near, vectors, threshold=adjacent)
            else:
                pairs, there, heads, tails = build_all_entity_pairs(vectors, mask)
            chances = self._triples(heads, tails, seen.related)[0].sigmoid().float().cpu().numpy()
        found = []
        limits, numbers = bounds[0].tolist(), pairs[0].tolist()
        for (head, tail), row, good in zip(numbers, chances, there[0].tolist(), strict=True):
            if good and head >= 0 and tail >= 0:
                found.append((tuple(limits[head]), tuple(limits[tail]), row))
        return found

    def _projected(self, hidden: Hidden, name: str) -> Hidden:
        layer = getattr(self._parts.token_rep_layer, name, None)
        return hidden if layer is None else Hidden(layer(hidden.states), hidden.layout)

    def _labels(self, jobs: Sequence[SpanJob]) -> dict[str, Tensor]:
        """A vector for every label of these jobs; those that were read before are not read again."""
        asked = {
            label: ids for job in jobs for label, ids in zip(job.wanted.prompts, job.label_ids, strict=True)
        }
        return dict(zip(asked, self._known.of(list(asked.values())), strict=True))

    def _read(self, labels: Sequence[Ids]) -> Sequence[Tensor]:
        hidden = self._projected(self._of_labels.hidden(labels), "labels_projection")
        return list(pool(hidden, "mean").cpu())

    def _divided(self, states: Hidden, windows: Sequence[Window], counts: Sequence[int]) -> Iterator[Part]:
        """`counts` are the labels of each window: their vectors are as many times as there are windows."""
        order = sorted(range(len(windows)), key=lambda place: len(windows[place].span))
        first = 0
        while first < len(order):
            last, most = first + 1, counts[order[first]]
            while last < len(order) and self._fits(windows, order, first, last):
                most = max(most, counts[order[last]])
                if most * (last - first + 1) > self._rows * LABELS:
                    break
                last += 1
            yield self._part(states, windows, order[first:last])
            first = last

    def _fits(self, windows: Sequence[Window], order: Sequence[int], first: int, last: int) -> bool:
        """Whether the window at `last` may go with those from `first`: ascending lengths."""
        shortest, longest = (len(windows[order[place]].span) for place in (first, last))
        if self._alike and shortest != longest:
            return False
        return longest * (last - first + 1) <= self._rows

    def _part(self, states: Hidden, windows: Sequence[Window], places: Sequence[int]) -> Part:
        dim, device = states.states.shape[1], states.states.device
        lengths = [len(windows[place].span) for place in places]
        words = states.states.new_zeros(len(places), lengths[-1], dim)
        for row, place in enumerate(places):
            window = windows[place]
            of = torch.from_numpy(window.words).to(device)
            tokens = states.of(place)[torch.from_numpy(window.tokens).to(device)]
            self._pooled(words[row], of, tokens)
        real = torch.arange(lengths[-1])[None] < torch.tensor(lengths)[:, None]
        if hasattr(self.module, "rnn") and not self._bi_encoder:
            words = self._parts.rnn(words, real, lengths=lengths)
        return Part(places, words, real.to(device))

    def _pooled(self, words: Tensor, of: Tensor, tokens: Tensor) -> None:
        how = getattr(self._config, "subtoken_pooling", "first")
        if how in ("first", "last"):
            words[of] = tokens
            return
        reduce = {"mean": "mean", "max": "amax"}[how]
        words.scatter_reduce_(0, of[:, None].expand_as(tokens), tokens, reduce, include_self=False)

    def _heads(self, part: Part, vectors: Sequence[Tensor], related: Sequence[Tensor]) -> Iterator[Seen]:
        counts = [len(rows) for rows in vectors]
        labels = part.words.new_zeros(len(counts), max(counts), part.words.shape[2])
        for row, found in zip(labels, vectors, strict=True):
            row[: len(found)] = found
        words = part.words
        if hasattr(self.module, "cross_fuser") and self._bi_encoder:
            asked = torch.arange(max(counts))[None] < torch.tensor(counts)[:, None]
            asked = asked.to(words.device)
            words, labels = self._parts.features_enhancement(
                words, labels, text_mask=part.real, labels_mask=asked.long()
            )
            labels = labels * asked[..., None]
        if hasattr(self.module, "prompt_rep_layer"):
            labels = self._parts.prompt_rep_layer(labels)
        logits = self._scored(words, labels, part.real)
        chances = logits.float().sigmoid().cpu().numpy()
        for row, count in enumerate(counts):
            length = int(part.real[row].sum())
            said = chances[row, :length, :count] if self._token_level else chances[row, :length, :, :count]
            yield Seen(said, words[row : row + 1, :length], labels[row : row + 1, :count], related[row][None])

    def _scored(self, words: Tensor, labels: Tensor, real: Tensor) -> Tensor:
        """Logits: (windows, words, widths, labels), or (windows, words, labels, 3)."""
        if self._token_level:
            # each label meets each word in a wide layer: many labels go one group after the other
            most = max(1, self._rows * LABELS // (words.shape[0] * words.shape[1]))
            return torch.cat([self._parts.scorer(words, some) for some in labels.split(most, 1)], 2)
        spans, inside = self._spans(words.shape[1], len(words), real)
        vectors = self._parts.span_rep_layer(words, spans * inside[..., None])
        return torch.einsum("BLKD,BCD->BLKC", vectors, labels)

    def _spans(self, length: int, count: int, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """First and last word of every span (count, spans, 2), and whether there is such a one."""
        device = self._encoder_device()
        widest = int(self._config.max_width)
        starts = torch.arange(length, device=device)[:, None].expand(-1, widest)
        spans = torch.stack([starts, starts + torch.arange(widest, device=device)], -1).reshape(-1, 2)
        ends = torch.full((count,), length, device=device) if real is None else real.sum(1)
        return spans[None].expand(count, -1, -1), spans[None, :, 1] < ends[:, None]

    def _encoder_device(self) -> torch.device:
        return cast(torch.device, self._parts.token_rep_layer.bert_layer.model.device)

    def _triples(self, heads: Tensor, tails: Tensor, relations: Tensor) -> Tensor:
        """Logits (1, pairs, relations)."""
        if hasattr(self.module, "pair_rep_layer"):
            pairs = self._parts.pair_rep_layer(torch.cat((heads, tails), -1))
            return torch.einsum("BND,BCD->BNC", pairs, relations)
        shape = (heads.shape[1], relations.shape[1], heads.shape[2])
        head, tail = (x[0][:, None].expand(shape).reshape(-1, shape[2]) for x in (heads, tails))
        relation = relations[0][None].expand(shape).reshape(-1, shape[2])
        return cast(Tensor, self._parts.triples_score_layer(head, relation, tail).view(1, *shape[:2]))
