"""Encoders run on sequences laid end to end, shortest first, so that no time goes into padding.

One attention function serves every family that uses transformers' attention interface: position ids
restart with each sequence and attention stays inside it. Families outside the interface run in
buckets of nearly equal length. Either way the caller sees the same flat rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from engine.adapters.forward import attention, dialects, linear
from engine.adapters.forward.packing import Layout, buckets
from engine.adapters.lora.rows import applied, laid

Ids = NDArray[np.int32]

PACKED = frozenset(
    [
        "albert",
        "bert",
        "camembert",
        "distilbert",
        "electra",
        "ernie",
        "eurobert",
        "gemma",
        "gemma3_text",
        "gte",
        "jina_bert",
        "jina_embeddings_v3",
        "llama",
        "mistral",
        "modernbert",
        "new",
        "nomic_bert",
        "nomic_moe",
        "qwen2",
        "qwen3",
        "roberta",
        "xlm-roberta",
    ]
)
"""Values of `model_type` that give the same when packed as when run alone; the tests hold each to it."""
AFTER_PADDING = frozenset(["camembert", "roberta", "xlm-roberta"])
"""Families whose position ids begin after the padding token's id."""
CHUNK = {"cpu": 1024, "cuda": 16384}
"""Tokens of one forward. On a CPU more than this leaves the caches and gets slower."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Last hidden states of several sequences: `states` is (tokens, dim), laid out as `layout` says.

    A head that works token by token is applied to `states` at once; `of(i)` are the rows of the
    caller's i-th sequence. For one row a sequence, see `layout.segments` and `layout.given`.
    """

    states: Tensor
    layout: Layout

    def of(self, index: int) -> Tensor:
        return self.states[self.layout.rows(index)]


class Encoder:
    """A transformers encoder, or a model with a head on one, that takes sequences of any lengths at once.

    Threads may share it. The head, if there is one, is left to the caller. On a CPU the linear layers
    of `model` are replaced by prepacked ones.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        linear.pack(model)
        self.packed = model.config.model_type in PACKED
        if self.packed:
            attention.register()
            model.set_attn_implementation(attention.NAME)
        # a wrapper's base is what it calls first; a bare encoder is its own base
        self._base = cast(PreTrainedModel, model.base_model)
        takes = inspect.signature(self._base.forward).parameters
        self._takes_types = "token_type_ids" in takes and getattr(model.config, "type_vocab_size", 0) > 1
        self._first = int(model.config.pad_token_id) + 1 if model.config.model_type in AFTER_PADDING else 0
        self._padding = int(getattr(model.config, "pad_token_id", None) or 0)
        self._budget = CHUNK.get(model.device.type, CHUNK["cpu"])

    @property
    def _device(self) -> torch.device:
        """Asked each time: a model that was parked may come back to another card."""
        return self._base.device

    def hidden(
        self,
        sequences: Sequence[Ids],
        types: Sequence[Ids] | None = None,
        seen: Sequence[int] | None = None,
        adapters: Sequence[str | None] | None = None,
    ) -> Hidden:
        """Last hidden states of `sequences` of token ids, each with at least one.

        `types` are token type ids, all zero when left out; ignored where the model has none. `seen`:
        how many of each sequence's first tokens are attended to, all when left out. `adapters`: which
        one each is read with, where a packed model has several. The states do not
        depend on what else is in the call, beyond float32 rounding.
        """
        layout = Layout([len(ids) for ids in sequences], seen)
        flat = np.concatenate([sequences[i] for i in layout.order])
        kinds = None
        if types is not None and self._takes_types:
            kinds = np.concatenate([types[i] for i in layout.order])
        forward = self._packed if self.packed else self._padded
        parts = []
        with torch.inference_mode():
            for places, rows in layout.chunks(self._budget):
                chunk = layout.part(places)
                with self._adapted(adapters, layout, places):
                    parts.append(forward(chunk, flat[rows], None if kinds is None else kinds[rows]))
            return Hidden(parts[0] if len(parts) == 1 else torch.cat(parts), layout)

    def _adapted(
        self, adapters: Sequence[str | None] | None, layout: Layout, places: slice
    ) -> AbstractContextManager[None]:
        """Rows go by their own adapter; where there is none, by what the thread says already."""
        if adapters is None or not self.packed or not any(adapters):
            return nullcontext()
        names = [adapters[index] for index in layout.order[places]]
        return applied(laid(names, layout.lengths[places].tolist(), self._device))

    def _packed(self, layout: Layout, ids: Ids, types: Ids | None) -> Tensor:
        inputs = {"input_ids": self._row(ids), "position_ids": self._row(layout.positions() + self._first)}
        if types is not None:
            inputs["token_type_ids"] = self._row(types)
        return cast(Tensor, self._base(**inputs, packing=layout, **self._uncached()).last_hidden_state[0])

    def _padded(self, layout: Layout, ids: Ids, types: Ids | None) -> Tensor:
        parts = []
        for places in buckets(layout.lengths, self._budget):
            lengths = layout.lengths[places]
            rows = slice(int(layout.starts[places.start]), int(layout.ends[places.stop - 1]))
            real = np.arange(lengths[-1]) < lengths[:, None]
            inputs = {"input_ids": self._grid(real, ids[rows], self._padding)}
            seen = lengths if layout.seen is None else layout.seen[places]
            mask = np.arange(lengths[-1]) < seen[:, None]
            inputs["attention_mask"] = torch.from_numpy(mask).to(self._device, torch.int64)
            if types is not None:
                inputs["token_type_ids"] = self._grid(real, types[rows], 0)
            states = self._base(**inputs, **self._uncached()).last_hidden_state
            parts.append(states[torch.from_numpy(real).to(self._device)])
        return torch.cat(parts)

    def _uncached(self) -> dict[str, bool]:
        # a decoder used as an encoder would otherwise copy every key and value into a cache
        return {"use_cache": False} if hasattr(self._base.config, "use_cache") else {}

    def _row(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values.astype(np.int64)).to(self._device)[None]

    def _grid(self, real: NDArray[np.bool_], values: Ids, filler: int) -> Tensor:
        grid = np.full(real.shape, filler, np.int64)
        grid[real] = values
        return torch.from_numpy(grid).to(self._device)


def workspace_per_token(config: Mapping[str, Any], bytes_per_value: int = 4) -> float:
    """Bytes that a token of a batch takes at the worst moment, from a model's config.json.

    In a feed-forward block that is the intermediate values up to three times (gate, up and product;
    two where there is no gate) and four rows of the hidden size (input, residual, output, sum). The
    attention block holds less: about seven rows. Batches beyond a chunk take less a token. A model
    outside the attention interface also holds scores, a row of its longest input for each head, and
    twice again for its relative positions.
    """
    hidden = _said(config, 768, "hidden_size", "dim", "d_model")
    inner = _said(config, 4 * hidden, "intermediate_size", "hidden_dim", "d_ff")
    values = max(3 * inner + 4 * hidden, 7 * hidden)
    if config.get("model_type") == dialects.JINA_BERT:
        # of its bias heads x length numbers, but never more than the bound for a whole pass
        values += int((_said(config, 12, "num_attention_heads") * attention.DISTANCES) ** 0.5)
    if config.get("model_type") not in PACKED:
        heads = _said(config, 12, "num_attention_heads", "n_heads", "num_heads")
        values += 3 * heads * _said(config, 512, "max_position_embeddings", "n_positions")
    return float(values * bytes_per_value)


def _said(config: Mapping[str, Any], otherwise: int, *names: str) -> int:
    """The first of these that a configuration holds."""
    return next((int(config[name]) for name in names if config.get(name)), otherwise)
