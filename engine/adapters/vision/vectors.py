"""Vectors of images as they are asked for: cut, of length one, quantised."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.adapters.forward.quantize import DTYPES, quantize
from engine.catalog import ModelSpec
from engine.errors import InvalidInput, NotFinite
from engine.requests import Encoded, EncodeOptions, OutputType

MOST_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job asks of its vector."""

    normalize: bool
    dimensions: int | None
    dtype: str

    @classmethod
    def of(cls, spec: ModelSpec, options: EncodeOptions, instruction: bool = False) -> Wanted:
        """Raises InvalidInput for what the model cannot do."""
        dims = sorted({*spec.matryoshka, *spec.dims.values()})
        kinds = {kind.value for kind in options.output_types} - {OutputType.DENSE.value}
        for option, value, possible, choices in (
            ("output_type", ", ".join(sorted(kinds)), not kinds, ("dense",)),
            ("output_dtype", options.output_dtype, options.output_dtype in DTYPES, DTYPES),
            ("dimensions", options.dimensions, options.dimensions in (None, *dims), dims),
            ("pooling", options.pooling, options.pooling is None, ("what the model does itself",)),
            (
                "instruction",
                options.instruction,
                instruction or options.instruction is None,
                ("images alone",),
            ),
        ):
            if not possible:
                can = ", ".join(map(str, choices))
                raise InvalidInput(f"{spec.id} cannot do {option} {value!r}; it can do: {can}")
        normalize = options.normalize
        if normalize is None:
            normalize = bool(spec.options.get("normalize", spec.normalize))
        return cls(normalize, options.dimensions, options.output_dtype)

    def encoded(self, vector: NDArray[np.float32]) -> Encoded | NotFinite:
        if not np.isfinite(vector).all():
            return NotFinite()
        vector = vector[: self.dimensions]
        if self.normalize:
            vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
        return Encoded(dense=quantize(vector.astype(np.float32), self.dtype))


class TextVectors:
    """Vectors of the labels that are asked for again and again, made once each. Threads may share it.

    Kept in host memory: a label's vector is small, and what a device holds is counted.
    """

    def __init__(self, embed: Callable[[Sequence[str]], Tensor]) -> None:
        """`embed` makes (texts, dims), under inference mode."""
        self._embed = embed
        self._kept: OrderedDict[str, Tensor] = OrderedDict()
        self._lock = Lock()

    def of(self, texts: Sequence[str]) -> Tensor:
        """(texts, dims), float32, on the CPU."""
        with self._lock:
            found = {text: self._kept[text] for text in texts if text in self._kept}
        if missing := [text for text in dict.fromkeys(texts) if text not in found]:
            found |= dict(zip(missing, self._embed(missing).float().cpu().unbind(), strict=True))
        with self._lock:
            for text in texts:
                self._kept[text] = found[text]
                self._kept.move_to_end(text)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return torch.stack([found[text] for text in texts])
