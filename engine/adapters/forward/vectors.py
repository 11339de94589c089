"""Vectors of all kinds out of one forward pass: dense, sparse (SPLADE, token weights) and multivector."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from engine.adapters.forward import heads, layers
from engine.adapters.forward.layers import Held
from engine.adapters.forward.muvera import Muvera
from engine.adapters.forward.onnx import Network
from engine.adapters.forward.packed import Hidden
from engine.adapters.forward.pooling import pool
from engine.adapters.forward.table import Table
from engine.adapters.preparing.routes import QUERY
from engine.adapters.preparing.text_jobs import EncodeJob, Wanted
from engine.requests import Sparse

SPARSE_ROWS = 256
"""Tokens whose scores over the whole vocabulary are held at once."""

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda scores: scores.relu_().log1p_(),
    "log1p_relu": lambda scores: scores.relu_().log1p_().log1p_(),
}
"""In place: log(1 + relu(score)), arXiv 2109.10086; once more log(1 + it), arXiv 2504.14839."""


@dataclass(frozen=True, slots=True)
class Trained:
    """One transformer or table, and what stands behind it."""

    model: Network | Table
    after: tuple[Held, ...] = ()
    """After pooling."""
    projections: tuple[Held, ...] = ()
    """Of each token's vector."""
    token_weights: tuple[Held, ...] = ()
    muvera: Muvera | None = None
    """Makes the dense vector of those of the tokens."""

    def tensors(self) -> dict[str, Tensor]:
        groups = {"after": self.after, "projections": self.projections, "token_weights": self.token_weights}
        return {
            f"{group}.{number}.{name}": tensor
            for group, held in groups.items()
            for number, layer in enumerate(held)
            for name, tensor in layer.tensors.items()
        }


class Vectors:
    """One pass over `jobs`, and what can be made of it. Places are indices of jobs."""

    def __init__(self, trained: Trained, hidden: Hidden, jobs: Sequence[EncodeJob]) -> None:
        self._trained, self._hidden, self._jobs = trained, hidden, jobs
        self._pooled: dict[str, Tensor] = {}
        self._tokens: Tensor | None = None

    def dense(self, places: Sequence[int]) -> dict[int, Tensor]:
        """float32, of the length and the dimensions that each job wants."""
        if self._trained.muvera is not None:
            return {place: self._fixed(self._trained.muvera, place) for place in places}
        alike: dict[Wanted, list[int]] = defaultdict(list)
        for place in places:
            alike[self._jobs[place].wanted].append(place)
        found: dict[int, Tensor] = {}
        for wanted, group in alike.items():
            vectors = self._after(wanted.pooling)[group][:, : wanted.dimensions]
            if wanted.normalize:
                vectors = normalize(vectors)
            found.update(zip(group, vectors, strict=True))
        return found

    def _fixed(self, muvera: Muvera, place: int) -> Tensor:
        make = muvera.query if self._jobs[place].role == QUERY else muvera.document
        return torch.from_numpy(make(self.tokens(place).cpu().numpy()))

    def _after(self, pooling: str) -> Tensor:
        if pooling not in self._pooled:
            pooled = pool(self._hidden, pooling, [job.skipped for job in self._jobs])
            self._pooled[pooling] = layers.apply(self._trained.after, pooled).float()
        return self._pooled[pooling]

    def tokens(self, place: int) -> Tensor:
        """(tokens, dims) float32: a vector for each token that counts (ColBERT, arXiv 2004.12832)."""
        if self._tokens is None:
            self._tokens = layers.apply(self._trained.projections, self._hidden.states).float()
        job = self._jobs[place]
        vectors = self._tokens[self._hidden.layout.rows(place)]
        if job.counted is not None:
            vectors = vectors[torch.from_numpy(job.counted).to(vectors.device)]
        return normalize(vectors, dim=-1) if job.wanted.normalize else vectors

    def sparse(self, places: Sequence[int]) -> dict[int, Sparse]:
        """Always float32; those that are not finite are missing."""
        return self._weighed(places) if self._trained.token_weights else self._splade(places)

    def _weighed(self, places: Sequence[int]) -> dict[int, Sparse]:
        """BGE-M3: each token weighs what its head says, the largest where it comes twice."""
        weighed = layers.apply(self._trained.token_weights, self._hidden.states)
        strengths = weighed.float().relu_()[:, 0].cpu().numpy()
        model = self._trained.model
        assert not isinstance(model, Table), "a table has no head that weighs tokens"
        dims = int(model.config.vocab_size)
        found = {}
        for place in places:
            job, mine = self._jobs[place], strengths[self._hidden.layout.rows(place)]
            assert job.words is not None, "the preparer says which tokens are words where a model weighs them"
            best = np.zeros(dims, np.float32)
            np.maximum.at(best, job.ids[job.words], mine[job.words])
            if np.isfinite(mine).all():
                found[place] = _terms(best)
        return found

    def _splade(self, places: Sequence[int]) -> dict[int, Sparse]:
        """The scores of a masked language model, pooled over the tokens, special ones included.

        What sentence-transformers' SpladePooling does.
        """
        layout, asking = self._hidden.layout, set(places)
        found = {}
        for laid, rows in layout.chunks(SPARSE_ROWS):
            indices = [index for index in layout.order[laid].tolist() if index in asking]
            if not indices:
                continue
            first = rows.start
            scores = None
            if laid.stop - laid.start > 1:
                scores = heads.token_logits(self._trained.model, self._hidden.states[rows])
            for index in indices:
                own = layout.rows(index)
                mine = None if scores is None else scores[own.start - first : own.stop - first]
                row = self._strengths(index, mine).float().cpu().numpy()
                if np.isfinite(row).all():
                    found[index] = _terms(row)
        return found

    def _strengths(self, index: int, scores: Tensor | None) -> Tensor:
        """(vocabulary,) of one sequence; `scores` are those of its tokens, where they are few enough."""
        wanted = self._jobs[index].wanted
        activate = ACTIVATIONS[wanted.sparse_activation]
        states = self._hidden.of(index)
        parts: Sequence[Tensor] = (scores,) if scores is not None else torch.split(states, SPARSE_ROWS)
        pooled: Tensor | None = None
        for part in parts:
            logits = part if scores is not None else heads.token_logits(self._trained.model, part)
            # both activations grow with the score: the largest may be taken first
            row = activate(logits.clone()).sum(0) if wanted.sparse_pooling == "sum" else logits.amax(0)
            pooled = row if pooled is None else _joined(wanted.sparse_pooling, pooled, row)
        assert pooled is not None, "a sequence has at least one token"
        return pooled if wanted.sparse_pooling == "sum" else activate(pooled)


def _joined(how: str, one: Tensor, other: Tensor) -> Tensor:
    return one + other if how == "sum" else torch.maximum(one, other)


def _terms(row: NDArray[np.float32]) -> Sparse:
    terms = np.flatnonzero(row)
    return Sparse(len(row), terms.astype(np.int32), row[terms])
