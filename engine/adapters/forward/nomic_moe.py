"""Nomic's encoder with experts (`nomic-embed-text-v2-moe`): NomicBert with biases, every second block sparse.

arXiv 2502.07972; the computation is that of its `modeling_hf_nomic_bert.py`. Each token goes to the experts
that its router likes best, weighed by the router's chances as they are, which sum to less than 1.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import AutoConfig, AutoModel
from transformers.activations import ACT2FN
from transformers.models.nomic_bert.configuration_nomic_bert import NomicBertConfig
from transformers.models.nomic_bert.modeling_nomic_bert import NomicBertModel

from engine.adapters.forward.dialects import NOMIC_MOE


class NomicMoeConfig(NomicBertConfig):
    model_type = NOMIC_MOE
    num_experts: int = 8
    moe_top_k: int = 2
    moe_every_n_layers: int = 2


def register() -> None:
    """Make the family known to transformers' automatic classes. Again is harmless."""
    AutoConfig.register(NOMIC_MOE, NomicMoeConfig, exist_ok=True)
    AutoModel.register(NomicMoeConfig, NomicMoeModel, exist_ok=True)


class _FeedForward(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.act = ACT2FN[config.hidden_act]

    def forward(self, states: Tensor) -> Tensor:
        return cast(Tensor, self.fc2(self.act(self.fc1(states))))


class _Experts(nn.Module):
    """`w1` and `w2` hold one expert's rows after the other's, both as (experts x inner, hidden)."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.count, self.best = config.num_experts, config.moe_top_k
        self.router = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        shape = config.num_experts * config.intermediate_size, config.hidden_size
        self.w1, self.w2 = (
            nn.Parameter(torch.empty(shape).normal_(std=config.initializer_range)) for _ in range(2)
        )
        self.bias = nn.Parameter(torch.zeros(config.hidden_size))
        self.act = ACT2FN[config.hidden_act]

    def forward(self, states: Tensor) -> Tensor:
        rows = states.reshape(-1, states.shape[-1])
        chances, chosen = self.router(rows).softmax(-1, dtype=torch.float32).topk(self.best, dim=-1)
        # by expert, the places in `chosen` of the tokens that go to it
        places = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=self.count).tolist()
        shares = chances.flatten()[places].to(rows.dtype)
        out = torch.zeros_like(rows)
        first, second = self.w1.chunk(self.count), self.w2.chunk(self.count)
        for expert, (place, share) in enumerate(zip(places.split(counts), shares.split(counts), strict=True)):
            tokens = place // self.best
            made = self.act(linear(rows[tokens], first[expert])) @ second[expert]
            out.index_add_(0, tokens, made * share[:, None])
        return (out + self.bias).view(states.shape)


class NomicMoeModel(NomicBertModel):
    config_class = NomicMoeConfig

    def __init__(self, config: Any, add_pooling_layer: bool = False) -> None:
        cast(Any, super()).__init__(config, add_pooling_layer)
        width = config.hidden_size
        for number, layer in enumerate(cast(Any, self).layers):
            sparse = number % config.moe_every_n_layers == 1
            layer.mlp = _Experts(config) if sparse else _FeedForward(config)
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                setattr(layer.self_attn, name, nn.Linear(width, width))
