"""JinaBERT (`jina-embeddings-v2-*`, `jina-reranker-v1-*`): BERT with ALiBi and a gated feed-forward block.

arXiv 2310.19923. The computation is that of `jina-bert-implementation` and of `jina-bert-v2-qk-post-norm`,
which normalises queries and keys too, under the names of their tensors. It is run packed only: its bias
belongs to the attention of a packed row.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from engine.adapters.forward.bert_parts import Embeddings, Pooler
from engine.adapters.forward.dialects import JINA_BERT
from engine.adapters.forward.packing import Layout

_ACTIVATIONS = {"geglu": "gelu", "reglu": "relu"}


class JinaBertConfig(PreTrainedConfig):
    model_type = JINA_BERT
    vocab_size: int = 30528
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    feed_forward_type: str = "geglu"
    max_position_embeddings: int = 8192
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    qk_norm: bool = False
    """Whether queries and keys are normalised: told by the checkpoint's tensors, not by its config.json."""


def register() -> None:
    """Make the family known to transformers' automatic classes. Again is harmless."""
    AutoConfig.register(JINA_BERT, JinaBertConfig, exist_ok=True)
    AutoModel.register(JinaBertConfig, JinaBertModel, exist_ok=True)
    AutoModelForSequenceClassification.register(
        JinaBertConfig, JinaBertForSequenceClassification, exist_ok=True
    )


def slopes(heads: int) -> list[float]:
    """How much each head minds a step of distance (ALiBi, arXiv 2108.12409).

    Where their number is no power of two, the rest are every other one of twice the power below it.
    """
    power = 1 << (heads.bit_length() - 1)
    first = [2.0 ** (-8 * step / power) for step in range(1, power + 1)]
    between = [2.0 ** (-4 * step / power) for step in range(1, 2 * power, 2)]
    return first + between[: heads - power]


class _Attended(nn.Module):
    """What the checkpoints call `attention.self`."""

    is_causal = False

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.size = config.hidden_size // config.num_attention_heads
        width = config.hidden_size
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        if config.qk_norm:
            self.layer_norm_q = nn.LayerNorm(width, eps=config.layer_norm_eps)
            self.layer_norm_k = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(self, states: Tensor, **kept: Any) -> Tensor:
        query, key, value = self.query(states), self.key(states), self.value(states)
        if self.config.qk_norm:
            query, key = self.layer_norm_q(query), self.layer_norm_k(key)
        heads = [part.unflatten(-1, (-1, self.size)).transpose(1, 2) for part in (query, key, value)]
        # by this very call transformers sees that the function may be exchanged
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, ALL_ATTENTION_FUNCTIONS["sdpa"]
        )
        attended, _ = attend(self, *heads, None, scaling=self.size**-0.5, **kept)
        return cast(Tensor, attended.flatten(2))


class _Output(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)


class _Attention(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.self = _Attended(config)
        self.output = _Output(config)

    def forward(self, states: Tensor, **kept: Any) -> Tensor:
        made = self.output.dense(self.self(states, **kept))
        return cast(Tensor, self.output.LayerNorm(made + states))


class _FeedForward(nn.Module):
    """With its own residual and norm. The gate is the first half of what goes in."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.gated_layers = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.wo = nn.Linear(config.intermediate_size, config.hidden_size)
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.act = ACT2FN[_ACTIVATIONS[config.feed_forward_type]]

    def forward(self, states: Tensor) -> Tensor:
        gate, value = self.gated_layers(states).chunk(2, dim=-1)
        return cast(Tensor, self.layernorm(self.wo(self.act(gate) * value) + states))


class _FeedForwardAlone(nn.Module):
    """Of the variant that normalises queries. The gate is the second half of what goes in."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.up_gated_layer = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.down_layer = nn.Linear(config.intermediate_size, config.hidden_size)
        self.act = ACT2FN[_ACTIVATIONS[config.feed_forward_type]]

    def forward(self, states: Tensor) -> Tensor:
        value, gate = self.up_gated_layer(states).chunk(2, dim=-1)
        return cast(Tensor, self.down_layer(value * self.act(gate)))


class _Layer(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.attention = _Attention(config)
        self.mlp = _FeedForward(config)

    def forward(self, states: Tensor, **kept: Any) -> Tensor:
        return cast(Tensor, self.mlp(self.attention(states, **kept)))


class _NormedLayer(nn.Module):
    """Its attention has a residual of its own besides this one."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.attention = _Attention(config)
        self.mlp = _FeedForwardAlone(config)
        self.layer_norm_1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.layer_norm_2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, states: Tensor, **kept: Any) -> Tensor:
        states = self.layer_norm_1(states + self.attention(states, **kept))
        return cast(Tensor, self.layer_norm_2(states + self.mlp(states)))


class _Layers(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        kind = _NormedLayer if config.qk_norm else _Layer
        self.layer = nn.ModuleList([kind(config) for _ in range(config.num_hidden_layers)])


class _JinaBertPreTrained(PreTrainedModel):
    config_class = JinaBertConfig
    base_model_prefix = "bert"
    _supports_sdpa = True
    _supports_attention_backend = True


class JinaBertModel(_JinaBertPreTrained):
    def __init__(self, config: Any, add_pooling_layer: bool = False) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.encoder = _Layers(config)
        self.pooler = Pooler(config) if add_pooling_layer else None
        cast(Any, self).post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.word_embeddings

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        packing: Layout | None = None,
    ) -> BaseModelOutput:
        """One packed row; `position_ids` are not needed, since the bias knows distances alone."""
        if packing is None:
            raise ValueError("JinaBERT is run packed only: by torch, not as an ONNX graph made here")
        states = self.embeddings(input_ids, token_type_ids)
        by_head = torch.tensor(slopes(self.config.num_attention_heads), device=input_ids.device)
        for layer in self.encoder.layer:
            states = layer(states, packing=packing, slopes=by_head)
        return BaseModelOutput(last_hidden_state=states)


class JinaBertForSequenceClassification(_JinaBertPreTrained):
    """Its head is applied by `heads.sequence_logits`; this holds the tensors."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.bert = JinaBertModel(config, add_pooling_layer=True)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        cast(Any, self).post_init()
