"""Sparse vectors that are looked up: every term of a text has a weight of its own, whatever the text.

What sentence-transformers calls SparseStaticEmbedding, and OpenSearch inference-free queries.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.adapters.forward import weights
from engine.adapters.preparing.tokens import TextTokenizer
from engine.requests import Sparse


@dataclass(frozen=True, slots=True)
class Lookup:
    weights: NDArray[np.float32]

    @classmethod
    def of(cls, file: Path | None, size: int, tokenizer: TextTokenizer) -> Lookup:
        """From safetensors (`weight`) or JSON (token -> weight); of 1 for each of `size` terms without.

        Raises BadWeights for a file that holds something else.
        """
        if file is None:
            return cls(np.ones(size, np.float32))
        if file.suffix == ".json":
            return cls(_from_json(file, size, tokenizer))
        stored = weights.stored_in(file)
        if "weight" not in stored:
            raise weights.BadWeights(f"{file} holds no weight")
        return cls(weights.read({"weight": stored["weight"]})["weight"].float().numpy())

    def vector(self, ids: NDArray[np.int32]) -> Sparse:
        """Of a text of these tokens, each counted once. A token beyond the weights has none."""
        terms = np.unique(ids)
        terms = terms[terms < len(self.weights)]
        terms = terms[self.weights[terms] != 0]
        return Sparse(len(self.weights), terms.astype(np.int32), self.weights[terms])


def _from_json(file: Path, size: int, tokenizer: TextTokenizer) -> NDArray[np.float32]:
    found = np.zeros(size, np.float32)
    try:
        named = {str(token): float(weight) for token, weight in json.loads(file.read_text("utf-8")).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise weights.BadWeights(f"{file} is no map of tokens to weights: {error}") from error
    for token, weight in named.items():
        place = tokenizer.find(token)
        if place is not None and place < size:
            found[place] = weight
    return found
