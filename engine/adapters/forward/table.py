"""Tables of token vectors, of which a text has the mean: StaticEmbedding of sentence-transformers, model2vec.

No transformer and no positions: an embedding bag over the tokens of each text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from engine.adapters.family import Footprint
from engine.adapters.forward import weights
from engine.adapters.forward.packed import Hidden, Ids
from engine.adapters.forward.packing import Layout
from engine.adapters.forward.weights import BadWeights, Stored
from engine.adapters.preparing.routes import Route
from engine.catalog import ModelSpec

FILE = "model.safetensors"
PLAIN, MODEL2VEC = "embedding.weight", "embeddings"
"""The table's name in the files of either library."""
BASE_BYTES = 1 << 20
"""What a pass takes whatever its size."""
ROWS = 4
"""float32 vectors that a text holds at the worst moment, from its mean to its answer."""


class Table(nn.Module):
    """Stands where a transformers model does, and gives one vector for each sequence. Threads may share it.

    `rows` says which vector each token has, where several tokens share one; `strengths` what it weighs.
    """

    def __init__(self, vectors: Tensor, rows: Tensor | None, strengths: Tensor | None) -> None:
        super().__init__()
        self.vectors = _held(vectors)
        self.rows = None if rows is None else _held(rows.long())
        self.strengths = None if strengths is None else _held(strengths.to(vectors.dtype))

    def hidden(
        self,
        sequences: Sequence[Ids],
        types: Sequence[Ids] | None = None,
        seen: Sequence[int] | None = None,
        adapters: Sequence[str | None] | None = None,
    ) -> Hidden:
        """As `Encoder.hidden`, but the mean of each sequence as if it were its only token; 0 of an empty one.

        What else is given is for networks that have more than a table.
        """
        lengths = np.array([len(ids) for ids in sequences], np.int64)
        flat = np.concatenate([*sequences, np.zeros(0, np.int32)]).astype(np.int64)
        ids = torch.from_numpy(flat).to(self.vectors.device)
        starts = torch.from_numpy(np.cumsum(lengths) - lengths).to(ids.device)
        rows = ids if self.rows is None else self.rows[ids]
        if self.strengths is None:
            made = embedding_bag(rows, self.vectors, starts, mode="mean")
        else:
            weighed = embedding_bag(
                rows, self.vectors, starts, mode="sum", per_sample_weights=self.strengths[ids]
            )
            made = weighed / torch.from_numpy(np.maximum(lengths, 1)).to(ids.device)[:, None]
        return Hidden(made, Layout([1] * len(sequences)))


def _held(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


def load(spec: ModelSpec, route: Route, device: str) -> Table:
    """Raises BadWeights for tensors that do not belong together."""
    stored = _stored(route.path)
    dtype = weights.dtype_on(device, spec.dtype, route.path)
    held = {name: tensor.to(device) for name, tensor in weights.read(stored, dtype).items()}
    vectors = held[_name(stored)].to(dtype)  # some are stored as 8-bit integers, which are the numbers
    return Table(vectors, held.get("mapping"), held.get("weights"))


def footprint(spec: ModelSpec, route: Route) -> Footprint:
    """Raises BadWeights for what no table gives."""
    if [*spec.outputs] not in ([], ["dense"]) or spec.options.get("include_prompt") is False:
        raise BadWeights(f"{route.path} is a table of vectors: it makes dense ones, of all that it reads")
    dtype = weights.dtype_on(weights.likely_device(spec.devices), spec.dtype, route.path)
    stored = _stored(route.path)
    size = sum(entry.numel * (8 if name == "mapping" else dtype.itemsize) for name, entry in stored.items())
    return Footprint(size, BASE_BYTES, float(ROWS * 4 * described(route)["hidden_size"]))


def described(route: Route) -> dict[str, Any]:
    """What a configuration says of a transformer: config.json, or of a table its own size."""
    if not route.table:
        return weights.model_config(route.path)
    stored = _stored(route.path)
    tokens, size = stored[_name(stored)].shape
    return {
        "vocab_size": stored["mapping"].shape[0] if "mapping" in stored else tokens,
        "hidden_size": size,
        "model_type": "table",
    }


def of_model2vec(path: Path) -> bool:
    """Whether that library saved it. It leaves out of a text what is unknown to the tokenizer."""
    return _name(_stored(path)) == MODEL2VEC


def _stored(path: Path) -> Mapping[str, Stored]:
    """The table and what belongs to it. Raises BadWeights."""
    file = path / FILE
    if not file.is_file():
        raise BadWeights(f"{path} holds no {FILE}; pickles are not read. Save it as safetensors")
    found = weights.stored_in(file)
    wanted = (PLAIN,) if PLAIN in found else (MODEL2VEC, "mapping", "weights")
    held = {name: entry for name, entry in found.items() if name in wanted}
    if {PLAIN, MODEL2VEC}.isdisjoint(held) or len(held[_name(held)].shape) != 2:
        raise BadWeights(f"{file} holds no table of vectors under {PLAIN} or {MODEL2VEC}")
    _refuse_other_lengths(file, held)
    return held


def _refuse_other_lengths(file: Path, held: Mapping[str, Stored]) -> None:
    tokens = held["mapping" if "mapping" in held else _name(held)].shape[0]
    for name in ("mapping", "weights"):
        if name in held and held[name].shape != (tokens,):
            raise BadWeights(f"{file} has {name} of the shape {held[name].shape} for {tokens} tokens")


def _name(stored: Mapping[str, Stored]) -> str:
    return PLAIN if PLAIN in stored else MODEL2VEC
