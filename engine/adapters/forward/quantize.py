"""Embeddings in fewer bytes. One vector at a time: nothing here needs a sample of the corpus.

`binary` and `ubinary` are those of sentence-transformers' `quantize_embeddings`. Its `int8` and
`uint8` want ranges from a calibration set; here each vector has its own range, which keeps cosine
similarity (to about 1e-4) and gives up the vector's length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

DTYPES = ("float32", "float16", "int8", "uint8", "binary", "ubinary")


def quantize(vectors: NDArray[np.float32], dtype: str) -> NDArray[Any]:
    """`vectors` (..., dims) as one of `DTYPES`.

    int8: round(x * 127 / max|x|). uint8: the same plus 128. ubinary: a bit a dimension, set where
    x > 0, packed eight to a byte, first dimension highest. binary: those bytes minus 128, as int8.
    """
    match dtype:
        case "float32":
            return vectors
        case "float16":
            return vectors.astype(np.float16)
        case "int8":
            return _scaled(vectors).astype(np.int8)
        case "uint8":
            return (_scaled(vectors) + 128).astype(np.uint8)
        case "ubinary":
            return np.packbits(vectors > 0, axis=-1)
        case "binary":
            return (np.packbits(vectors > 0, axis=-1).astype(np.int16) - 128).astype(np.int8)
    raise ValueError(f"no dtype {dtype!r}; there are: {', '.join(DTYPES)}")


def _scaled(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    largest = np.abs(vectors).max(axis=-1, keepdims=True, initial=0)
    return np.rint(vectors * (127 / np.where(largest > 0, largest, 1))).astype(np.float32)
