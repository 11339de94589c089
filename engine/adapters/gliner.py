"""Entities, and relations between them, of any labels: GLiNER (arXiv 2311.08526) in its published forms.

Uni-encoders read the labels in front of the text; bi-encoders read them apart, once, and keep their vectors.
Long texts are read in overlapping windows of whole words; overlaps are settled over the whole text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from engine.adapters.family import Footprint
from engine.adapters.forward import weights
from engine.adapters.forward.packed import workspace_per_token
from engine.adapters.gliners.directory import Directory, stored
from engine.adapters.gliners.jobs import SpanJob, SpanPreparer
from engine.adapters.gliners.network import LABELS, ROWS, Network, Seen
from engine.adapters.labelling.choosing import Candidate, above, between, chosen, joined, named, placed
from engine.adapters.labelling.extractor import Extractor
from engine.catalog import ModelSpec
from engine.errors import EngineError, NotFinite
from engine.requests import Entity, Extracted, Relation, Task

BASE_BYTES = 16 << 20
"""What a forward pass takes whatever its size: GEMM buffers and small change."""
ENCODERS = ("token_rep_layer.bert_layer.model", "token_rep_layer.labels_encoder.model")


class Answers:
    """What a GLiNER's network saw, as entities and relations."""

    def __init__(self, network: Network, directory: Directory) -> None:
        self._network = network
        self._token_level = directory.token_level
        self._longest = int(directory.config.max_len)

    def make(self, job: SpanJob, windows: Sequence[Seen]) -> Extracted | EngineError:
        if not all(np.isfinite(seen.chances).all() for seen in windows):
            return NotFinite()
        found = self._told_by_tokens(job, windows) if self._token_level else self._spans(job, windows)
        kept = chosen(named(found, job.wanted.names), flat=job.flat, multi_label=job.multi_label)
        kept = joined(kept, job.words) if job.joined else kept
        return Extracted(
            entities=tuple(_entity(job, candidate) for candidate in kept),
            relations=tuple(self._relations(job, windows, kept)) if len(job.relations) else (),
        )

    def _spans(self, job: SpanJob, windows: Sequence[Seen]) -> list[Candidate]:
        found: list[Candidate] = []
        for window, seen in zip(job.windows, windows, strict=True):
            found += placed(above(seen.chances, job.wanted.thresholds), window.span, window.owned)
        return found

    def _told_by_tokens(self, job: SpanJob, windows: Sequence[Seen]) -> list[Candidate]:
        """Each word as the window sees it that has the most around it, so that no span ends at a seam."""
        if not windows:
            return []
        parts = [
            seen.chances[window.owned.start - window.span.start : window.owned.end - window.span.start]
            for window, seen in zip(job.windows, windows, strict=True)
        ]
        return between(np.concatenate(parts), job.wanted.thresholds, self._longest)

    def _relations(self, job: SpanJob, windows: Sequence[Seen], kept: Sequence[Candidate]) -> list[Relation]:
        """Between entities that were kept and that some window sees both; the surest where several do."""
        entities = {(c.first, c.last): _entity(job, c) for c in reversed(kept)}
        best: dict[tuple[tuple[int, int], tuple[int, int], int], float] = {}
        for window, seen in zip(job.windows, windows, strict=True):
            start = window.span.start
            for head, tail, row in self._network.related(seen, min(job.wanted.thresholds), job.adjacent):
                ends = [(first + start, last + start) for first, last in (head, tail)]
                if ends[0] == ends[1] or not all(end in entities for end in ends):
                    continue  # a span with two labels is proposed beside itself
                for relation in np.flatnonzero(row > np.asarray(job.relations.thresholds)).tolist():
                    key = (ends[0], ends[1], relation)
                    best[key] = max(best.get(key, 0.0), float(row[relation]))
        return [
            Relation(entities[head].text, entities[tail].text, job.relations.names[relation], score)
            for (head, tail, relation), score in best.items()
        ]


def _entity(job: SpanJob, found: Candidate) -> Entity:
    start, end = int(job.words[found.first, 0]), int(job.words[found.last, 1])
    return Entity(job.text[start:end], job.wanted.names[found.label], found.score, start, end)


class GlinerFamily:
    """GLiNER directories: gliner_config.json, model.safetensors and, mostly, a tokenizer."""

    cost_unit: ClassVar[str] = "tokens"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        directory = Directory(path)
        kind = weights.likely_device(spec.devices)
        dtype = weights.dtype_on(kind, spec.dtype, path)
        config = directory.config
        # of a word: its spans as pairs of ends and their square, four times wide; or its scores with labels
        row = config.hidden_size * dtype.itemsize * max(12 * int(config.max_width), 12 * LABELS)
        rows = max(ROWS.get(kind, ROWS["cpu"]), int(config.max_len))
        per_token = workspace_per_token(config.encoder_config.to_dict(), dtype.itemsize)
        return Footprint(weights.weights_bytes(path, dtype), BASE_BYTES + rows * row, per_token)

    def preparer(self, spec: ModelSpec, path: Path) -> SpanPreparer:
        return SpanPreparer(spec, path)

    def load(self, spec: ModelSpec, path: Path, device: str) -> Extractor[SpanJob, list[Seen]]:
        directory = Directory(path)
        module = _built(directory, path, weights.dtype_on(device, spec.dtype, path), device)
        network = Network(directory, module)
        return Extractor(network, Answers(network, directory).make)


def _built(directory: Directory, path: Path, dtype: torch.dtype, device: str) -> nn.Module:
    """The network with its weights. Raises BadWeights when some are missing."""
    network = weights.skeleton(lambda: directory.network(directory.config))
    held = stored(path)
    state = weights.read(held, dtype) if torch.device(device).type == "cpu" else weights.mapped(held)
    for name in ENCODERS:
        if not any(key.startswith(f"{name}.") for key in state):
            continue
        parent, _, child = name.rpartition(".")
        holder = cast(Any, network.get_submodule(parent))
        own = {k.removeprefix(f"{name}."): state.pop(k) for k in list(state) if k.startswith(f"{name}.")}
        empty = getattr(holder, child)
        made = weights.given(
            type(empty), empty.config, own, dtype, without=frozenset(["pooler"]), where=str(path)
        )
        setattr(holder, child, made)
    lacking = [
        name
        for name in network.load_state_dict(_cast(state, dtype), strict=False, assign=True).missing_keys
        if not name.startswith(ENCODERS)
    ]
    if lacking:
        raise weights.BadWeights(f"{path} lacks {len(lacking)} weights: {', '.join(lacking[:5])}")
    return cast(nn.Module, network.to(device).eval().requires_grad_(False))


def _cast(state: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: t.to(dtype) if t.is_floating_point() else t for name, t in state.items()}


FAMILY = GlinerFamily()
