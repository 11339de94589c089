"""A vector a token as one vector of fixed length, whose inner products are nearly MaxSim (arXiv 2405.19504).

Space is cut by random planes into parts, several times over. A query's vector is, part by part, the sum of
its tokens; a document's their mean, and where a part holds none, the token whose part is nearest. A search by
inner product then finds what MaxSim would rank first, and MaxSim itself ranks those few.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.adapters.forward.weights import BadWeights
from engine.catalog import ModelSpec
from engine.requests import OutputType

OPTION = "muvera"
USUAL = {"repetitions": 20, "bits": 5, "projection": 16, "seed": 0}
MOST_BITS = 10
LONGEST = 1 << 17
"""Numbers of one vector."""

Rows = NDArray[np.float32]


class Muvera:
    """How vectors of `width` numbers are laid into one. The same numbers make the same planes for ever:
    vectors that are stored stay comparable."""

    def __init__(self, width: int, repetitions: int, bits: int, projection: int | None, seed: int) -> None:
        """`bits`: planes of one cut, so that it has 2 ** bits parts. `projection`: numbers that are left of a
        token's; None for all."""
        draw = np.random.RandomState(seed)  # its stream is frozen, the newer generators' is not
        self._planes = draw.standard_normal((repetitions, width, bits)).astype(np.float32)
        if projection is None:
            self._projections = np.eye(width, dtype=np.float32)[None].repeat(repetitions, 0)
        else:
            signs = 2 * draw.randint(0, 2, (repetitions, width, projection)) - 1
            self._projections = (signs / projection**0.5).astype(np.float32)
        self._shape = (repetitions, 1 << bits, self._projections.shape[2])

    @property
    def size(self) -> int:
        return int(np.prod(self._shape))

    def query(self, tokens: Rows) -> Rows:
        """(size,) of (tokens, width)."""
        sums, _ = self._summed(tokens, self._parts(tokens))
        return self._flat(sums)

    def document(self, tokens: Rows) -> Rows:
        """(size,) of (tokens, width)."""
        if not len(tokens):
            return np.zeros(self.size, np.float32)
        parts = self._parts(tokens)
        found, counts = self._summed(tokens, parts)
        found /= np.maximum(counts, 1)[..., None]
        for repetition, part in np.argwhere(counts == 0).tolist():
            apart = np.bitwise_count(parts[:, repetition] ^ part)
            found[repetition, part] = tokens[apart.argmin()] @ self._projections[repetition]
        return self._flat(found)

    def _parts(self, tokens: Rows) -> NDArray[np.int64]:
        """(tokens, repetitions): a bit for each plane, set above it."""
        above = np.einsum("nw,rwb->nrb", tokens, self._planes) > 0
        powers: NDArray[np.int64] = 1 << np.arange(above.shape[2], dtype=np.int64)
        parts: NDArray[np.int64] = above @ powers
        return parts

    def _summed(self, tokens: Rows, parts: NDArray[np.int64]) -> tuple[Rows, NDArray[np.int64]]:
        """Sums of the projected tokens in each part, and how many there are."""
        projected = np.einsum("nw,rwp->nrp", tokens, self._projections)
        sums = np.zeros(self._shape, np.float32)
        counts = np.zeros(self._shape[:2], np.int64)
        repetitions = np.arange(self._shape[0])[None].repeat(len(tokens), 0)
        np.add.at(sums, (repetitions, parts), projected)
        np.add.at(counts, (repetitions, parts), 1)
        return sums, counts

    def _flat(self, made: Rows) -> Rows:
        flat: Rows = (made.ravel() / np.float32(self._shape[0] ** 0.5)).astype(np.float32)
        return flat


def muvera(spec: ModelSpec, width: int) -> Muvera | None:
    """What the entry's `options.muvera` says for tokens of `width` numbers; None where it says nothing.

    Raises BadWeights for what it cannot mean.
    """
    said = spec.options.get(OPTION)
    if said is None or said is False:
        return None
    given: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
    if (said is not True and not isinstance(said, Mapping)) or given.keys() - USUAL.keys():
        raise BadWeights(f"{spec.id}: muvera is true or a mapping with some of {', '.join(USUAL)}")
    if not {OutputType.DENSE, OutputType.MULTIVECTOR} <= {*spec.outputs}:
        raise BadWeights(f"{spec.id}: muvera makes dense vectors of a multivector; outputs names both")
    chosen = {**USUAL, **given}
    repetitions, bits, projection, seed = (chosen[name] for name in USUAL)
    whole = [repetitions, bits, seed, *([] if projection is None else [projection])]
    if not all(type(number) is int for number in whole) or not 0 <= bits <= MOST_BITS:
        raise BadWeights(f"{spec.id}: muvera has whole numbers, and at most {MOST_BITS} bits")
    numbers = repetitions * (1 << bits) * (width if projection is None else projection)
    if min(repetitions, 1 if projection is None else projection) < 1 or numbers > LONGEST or seed < 0:
        raise BadWeights(
            f"{spec.id}: muvera would make vectors of {numbers} numbers; from 1 to {LONGEST} may be"
        )
    return Muvera(width, repetitions, bits, projection, seed)
