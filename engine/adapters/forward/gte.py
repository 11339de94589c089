"""Alibaba's GTE encoders (`model_type: new`, and `gte` in Snowflake's copy of it): BERT with rotary positions
and a gated feed-forward block.

arXiv 2407.19669. Their repositories bring code of their own, which need not run here: this is the same
computation under the names of their tensors, over transformers' attention interface.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from engine.adapters.forward.bert_parts import Embeddings, Pooler

KIND = "new"
SNOWFLAKES = "gte"
"""What their config.json calls them."""


class GteConfig(PreTrainedConfig):
    model_type = KIND
    vocab_size: int = 30528
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    max_position_embeddings: int = 2048
    type_vocab_size: int = 1
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    layer_norm_type: str = "layer_norm"
    position_embedding_type: str = "rope"
    logn_attention_scale: bool = False
    pack_qkv: bool = True
    pad_token_id: int = 0
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    tie_word_embeddings: bool = True


class SnowflakeConfig(GteConfig):
    model_type = SNOWFLAKES


def register() -> None:
    """Make the family known to transformers' automatic classes. Again is harmless."""
    AutoConfig.register(KIND, GteConfig, exist_ok=True)
    AutoConfig.register(SNOWFLAKES, SnowflakeConfig, exist_ok=True)
    AutoModel.register(GteConfig, GteModel, exist_ok=True)
    AutoModel.register(SnowflakeConfig, SnowflakeModel, exist_ok=True)
    AutoModelForMaskedLM.register(GteConfig, GteForMaskedLM, exist_ok=True)
    classifier = AutoModelForSequenceClassification
    classifier.register(GteConfig, GteForSequenceClassification, exist_ok=True)
    classifier.register(SnowflakeConfig, SnowflakeForSequenceClassification, exist_ok=True)


def _frequencies(config: Any, device: torch.device) -> Tensor:
    """(half of a head's size,): radians that a step turns each pair by.

    Longer contexts than were trained on by NTK scaling with a fixed factor (kexue.fm/archives/9706).
    """
    size = config.hidden_size // config.num_attention_heads
    rope = config.rope_scaling or {}
    factor = float(rope.get("factor", 1.0))
    mixed = rope.get("mixed_b")
    places = torch.arange(0, size, 2, device=device, dtype=torch.float32)
    base = config.rope_theta if mixed is not None else config.rope_theta * factor
    turned: Tensor = 1.0 / base ** (places / size)
    if mixed is None:
        return turned * float(factor ** (-2 / size))
    steps = torch.arange(1, size // 2 + 1, device=device, dtype=torch.float32)
    strength: Tensor = torch.tensor(factor).log().to(device) / (size / 2) ** mixed
    slowed: Tensor = torch.exp(strength * steps**mixed)
    return turned / slowed


def _turn(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """(1, tokens, heads, size), each head's halves being pairs."""
    first, second = states.chunk(2, dim=-1)
    return states * cosines + torch.cat((-second, first), dim=-1) * sines


class _Attention(nn.Module):
    is_causal = False

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.size = config.hidden_size // config.num_attention_heads
        width = config.hidden_size
        if config.pack_qkv:
            self.qkv_proj = nn.Linear(width, 3 * width)
        else:
            self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.o_proj = nn.Linear(width, width)

    def forward(
        self, states: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor | None, **kept: Any
    ) -> Tensor:
        if self.config.pack_qkv:
            parts = self.qkv_proj(states).chunk(3, dim=-1)
        else:
            parts = (self.q_proj(states), self.k_proj(states), self.v_proj(states))
        query, key, value = (part.unflatten(-1, (-1, self.size)) for part in parts)
        query, key = _turn(query, *turns), _turn(key, *turns)
        named, usual = self.config._attn_implementation, ALL_ATTENTION_FUNCTIONS["sdpa"]
        # by this very call transformers sees that the function may be exchanged
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(named, usual)
        heads = (query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
        attended, _ = attend(self, *heads, mask, scaling=self.size**-0.5, **kept)
        return cast(Tensor, self.o_proj(attended.flatten(2)))


class _FeedForward(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.up_gate_proj = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size)
        self.act = ACT2FN[config.hidden_act]

    def forward(self, states: Tensor) -> Tensor:
        up, gate = self.up_gate_proj(states).chunk(2, dim=-1)
        return cast(Tensor, self.down_proj(self.act(gate) * up))


class _Layer(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.attention = _Attention(config)
        self.mlp = _FeedForward(config)
        self.attn_ln = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp_ln = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, states: Tensor, *around: Any, **kept: Any) -> Tensor:
        states = self.attn_ln(states + self.attention(states, *around, **kept))
        return cast(Tensor, self.mlp_ln(states + self.mlp(states)))


class _Layers(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.layer = nn.ModuleList([_Layer(config) for _ in range(config.num_hidden_layers)])


class _GtePreTrained(PreTrainedModel):
    config_class = GteConfig
    base_model_prefix = KIND
    _supports_sdpa = True
    _supports_attention_backend = True


class GteModel(_GtePreTrained):
    def __init__(self, config: Any, add_pooling_layer: bool = False) -> None:
        super().__init__(config)
        named = (config.position_embedding_type, config.layer_norm_type, bool(config.logn_attention_scale))
        if named != ("rope", "layer_norm", False):
            raise ValueError(f"a GTE encoder of this kind is not supported: {named}")
        self.embeddings = Embeddings(config)
        self.encoder = _Layers(config)
        self.pooler = Pooler(config) if add_pooling_layer else None
        cast(Any, self).post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.word_embeddings

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        **kept: Any,
    ) -> BaseModelOutput:
        """`attention_mask` as transformers' attention functions take it, so none for a packed row."""
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        states = self.embeddings(input_ids, token_type_ids)
        angles = position_ids[..., None] * _frequencies(self.config, input_ids.device)
        whole = torch.cat((angles, angles), dim=-1)[:, :, None]
        turns = (whole.cos().to(states.dtype), whole.sin().to(states.dtype))
        for layer in self.encoder.layer:
            states = layer(states, turns, attention_mask, **kept)
        return BaseModelOutput(last_hidden_state=states)


class SnowflakeModel(GteModel):
    config_class = SnowflakeConfig


class GteForSequenceClassification(_GtePreTrained):
    """Its head is applied by `heads.sequence_logits`; this holds the tensors."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.new = GteModel(config, add_pooling_layer=True)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        cast(Any, self).post_init()


class SnowflakeForSequenceClassification(GteForSequenceClassification):
    config_class = SnowflakeConfig


class _Words(nn.Module):
    """The scores of each token's place over the vocabulary."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act = ACT2FN[config.hidden_act]
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, states: Tensor) -> Tensor:
        return cast(Tensor, self.decoder(self.norm(self.act(self.dense(states)))))


class GteForMaskedLM(_GtePreTrained):
    """Its head is applied by `heads.token_logits`; this holds the tensors."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._tied_weights_keys = {"lm_head.decoder.weight": "new.embeddings.word_embeddings.weight"}
        self.new = GteModel(config)
        self.lm_head = _Words(config)
        cast(Any, self).post_init()
