"""Parts that networks of BERT's kind have in common, under the names of their tensors."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn


class Embeddings(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        if config.type_vocab_size > 0:
            self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, ids: Tensor, types: Tensor | None) -> Tensor:
        found = self.word_embeddings(ids)
        if hasattr(self, "token_type_embeddings"):
            found = found + self.token_type_embeddings(torch.zeros_like(ids) if types is None else types)
        return cast(Tensor, self.LayerNorm(found))


class Pooler(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, states: Tensor) -> Tensor:
        return torch.tanh(self.dense(states[:, 0]))
