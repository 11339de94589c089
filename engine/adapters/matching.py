"""Scores of documents for queries, out of the vectors of both."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.adapters.forward.similarity import SIMILARITIES, maxsim, scored
from engine.adapters.preparing.text_jobs import MAXSIM, MatchJob
from engine.errors import EngineError
from engine.requests import OutputType, Scored, Sparse

Made = dict[OutputType, Tensor | Sparse]
"""The vectors of one text: float32 tensors on the model's device, and sparse ones."""


def matched(jobs: Sequence[MatchJob], made: dict[int, Made]) -> list[Scored | EngineError]:
    """One a job, in order; `made` has the vectors of each text by the identity of its job."""
    alike: dict[int, list[int]] = defaultdict(list)
    for place, job in enumerate(jobs):
        alike[id(job.query)].append(place)
    scores = [math.nan] * len(jobs)
    for group in alike.values():
        first = jobs[group[0]]
        (kind,) = first.query.wanted.outputs
        query = made[id(first.query)].get(kind)
        documents = {place: made[id(jobs[place].document)].get(kind) for place in group}
        good = [place for place in group if query is not None and documents[place] is not None]
        if good:
            found = _similar(query, [documents[place] for place in good], first.similarity)
            scores = _put(scores, good, found)
    return scored(torch.tensor(scores), [job.sigmoid for job in jobs])


def _put(scores: list[float], places: Sequence[int], found: Sequence[float]) -> list[float]:
    for place, score in zip(places, found, strict=True):
        scores[place] = score
    return scores


def _similar(
    query: Tensor | Sparse | None, documents: Sequence[Tensor | Sparse | None], how: str
) -> list[float]:
    if isinstance(query, Sparse):
        return [_dot(query, document, how) for document in documents if isinstance(document, Sparse)]
    assert query is not None, "documents are compared with a query"
    rows = [document for document in documents if isinstance(document, Tensor)]
    found = maxsim(query, rows) if how == MAXSIM else SIMILARITIES[how](query, torch.stack(rows))
    return [float(score) for score in found.cpu()]


def _dot(query: Sparse, document: Sparse, how: str) -> float:
    _, mine, theirs = np.intersect1d(query.indices, document.indices, True, return_indices=True)
    found = float(query.values[mine] @ document.values[theirs])
    if how != "cosine":
        return found
    return found / max(float(np.linalg.norm(query.values) * np.linalg.norm(document.values)), 1e-12)
