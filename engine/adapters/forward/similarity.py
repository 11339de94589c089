"""How alike two texts are, by their vectors. Each takes one query and gives one number a document."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from engine.errors import EngineError, NotFinite
from engine.requests import Scored

SIMILARITIES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": lambda query, documents: normalize(documents) @ normalize(query, dim=0),
    "dot": lambda query, documents: documents @ query,
    "euclidean": lambda query, documents: -(documents - query).norm(dim=1),
    "manhattan": lambda query, documents: -(documents - query).norm(p=1, dim=1),
}
"""As sentence-transformers names them: (dims,) and (n, dims) -> (n,); larger is more alike."""


def maxsim(query: Tensor, documents: Sequence[Tensor]) -> Tensor:
    """(n,): for each vector of the query its best match in the document, summed (ColBERT).

    `query` is (tokens, dims), each document (its tokens, dims), with at least one token.
    """
    whole = query @ torch.cat(list(documents)).T
    parts = torch.split(whole, [len(document) for document in documents], dim=1)
    return torch.stack([part.amax(1).sum() for part in parts])


def scored(raw: Tensor, sigmoid: Sequence[bool]) -> list[Scored | EngineError]:
    """One a number, float32 on the CPU: as it is, or between 0 and 1 where that was asked."""
    pairs = zip(raw.tolist(), raw.sigmoid().tolist(), sigmoid, strict=True)
    scores = [bounded if wanted else score for score, bounded, wanted in pairs]
    return [Scored(score) if math.isfinite(score) else NotFinite() for score in scores]
