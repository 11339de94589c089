"""Repositories with modelling code of their own: the network that it is, by the names that it has here.

Jina's XLM-RoBERTa (`xlm-roberta-flash-implementation`) is transformers' JinaEmbeddingsV3 where its positions
turn, and transformers' XLM-RoBERTa where they are added. JinaBERT and Nomic's mixture of experts are networks
of our own. NVIDIA's bidirectional Llama is transformers' without its mask. Their code is never run; what it
computes is told by config.json. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

JINA_BERT, NOMIC_MOE = "jina_bert", "nomic_moe"
_TURNED, _ADDED = "jina_embeddings_v3", "xlm-roberta"
_THEIRS = frozenset(
    ["_name_or_path", "attn_implementation", "auto_map", "transformers_version", "use_flash_attn"]
)
"""Keys that are about the code that is not run."""

_NORM = {"emb_ln": "embeddings.LayerNorm"}
_NAMES: Mapping[str, Mapping[str, str]] = {
    _TURNED: {
        **_NORM,
        "encoder.layers": "layers",
        "mixer.out_proj": "self_attn.o_proj",
        "norm1": "post_attention_layernorm",
        "norm2": "post_mlp_layernorm",
    },
    _ADDED: {
        **_NORM,
        "encoder.layers": "encoder.layer",
        "mixer.out_proj": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "norm2": "output.LayerNorm",
        "mlp.fc1": "intermediate.dense",
        "mlp.fc2": "output.dense",
    },
    NOMIC_MOE: {
        **_NORM,
        "encoder.layers": "layers",
        "attn.out_proj": "self_attn.o_proj",
        "norm1": "post_attention_layernorm",
        "norm2": "post_mlp_layernorm",
        "mlp.router.layer": "mlp.router",
        "mlp.experts.mlp": "mlp",
        "mlp.experts": "mlp",
    },
}
"""By `model_type` here: parts of names, between dots."""
_FUSED: Mapping[str, tuple[str, tuple[str, str, str]]] = {
    _TURNED: ("mixer.Wqkv", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
    _ADDED: ("mixer.Wqkv", ("attention.self.query", "attention.self.key", "attention.self.value")),
    NOMIC_MOE: ("attn.Wqkv", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
}
"""One layer there that is three here, its rows in this order."""
_UNSAID = {"position_embedding_type": "absolute", "rotary_emb_fraction": 0.0}
"""What their code takes where config.json says nothing, and the networks here do not."""
_ORIGINAL = ".parametrizations.weight.original"
"""Of a layer that adapters lie beside (torch.nn.utils.parametrize)."""


def translated(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json as the network here is configured; as it is, where it is none of these.

    Raises ValueError for a variant that is not served.
    """
    kind = str((config.get("auto_map") or {}).get("AutoConfig", "")).rpartition(".")[2]
    own = {key: value for key, value in config.items() if key not in _THEIRS}
    if kind == "XLMRobertaFlashConfig":
        return _flash(own)
    if kind == "JinaBertConfig":
        return _jina_bert(own)
    if config.get("model_type") == "llama_bidirec":
        return own | {"model_type": "llama", "is_causal": False}
    if config.get("model_type") == "nomic_bert" and config.get("moe_every_n_layers"):
        return _nomic_moe(own)
    return dict(config)


def layers(kind: str, layer: str) -> tuple[str, ...]:
    """The layers that `layer` of a checkpoint is, in a network of `model_type` `kind`: one, or three."""
    for old, new in _NAMES.get(kind, {}).items():
        layer = re.sub(rf"(^|\.){re.escape(old)}(?=\.|$)", rf"\g<1>{new}", layer)
    fused, parts = _FUSED.get(kind, ("", ()))
    if fused and layer.endswith(fused):
        return tuple(layer.removesuffix(fused) + part for part in parts)
    return (layer,)


def renamed(kind: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a checkpoint by the names here; rows of fused layers go to the layers that they are."""
    if kind not in _NAMES:
        return dict(tensors)
    found: dict[str, Any] = {}
    for name, tensor in tensors.items():
        layer, _, end = name.replace(_ORIGINAL, ".weight").rpartition(".")
        new = layers(kind, layer)
        pieces = (tensor,) if len(new) == 1 else tensor.chunk(len(new))
        found.update({f"{each}.{end}": piece for each, piece in zip(new, pieces, strict=True)})
    return found


def _flash(config: dict[str, Any]) -> dict[str, Any]:
    if config.get("position_embedding_type", "absolute") == "absolute":
        return config | {"model_type": _ADDED}
    turns = {"rotary_emb_interleaved": False, "rotary_emb_scale_base": None}
    _need(config, {"position_embedding_type": "rotary", **turns})
    theta = float(config.get("rotary_emb_base") or 10000.0)
    return config | {"model_type": _TURNED, "rope_parameters": {"rope_type": "default", "rope_theta": theta}}


def _jina_bert(config: dict[str, Any]) -> dict[str, Any]:
    _need(config, {"position_embedding_type": "alibi"})
    if (block := config.get("feed_forward_type")) not in ("geglu", "reglu"):
        raise ValueError(f"feed_forward_type is {block!r}; of this architecture geglu and reglu are served")
    return config | {"model_type": JINA_BERT}


def _nomic_moe(config: dict[str, Any]) -> dict[str, Any]:
    wanted = {
        **{"activation_function": "gelu", "causal": False, "use_rms_norm": False},
        **{"prenorm": False, "parallel_block": False},
        **{"rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None},
        **{"num_shared_experts": 0, "expert_choice_router": False, "moe_normalize_expert_weights": False},
        **{"qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True},
    }
    _need(config, wanted)
    theta = float(config.get("rotary_emb_base") or 10000.0)
    kept = ("architectures", "bos_token_id", "dtype", "eos_token_id", "pad_token_id", "torch_dtype")
    return {key: config[key] for key in kept if config.get(key) is not None} | {
        "model_type": NOMIC_MOE,
        "hidden_act": "gelu",
        "hidden_size": config["n_embd"],
        "intermediate_size": config.get("n_inner") or 4 * config["n_embd"],
        "layer_norm_eps": config.get("layer_norm_epsilon", 1e-5),
        # beyond these its code would stretch the angles
        "max_position_embeddings": config.get("max_trained_positions") or config["n_positions"],
        "moe_every_n_layers": config["moe_every_n_layers"],
        "moe_top_k": config["moe_top_k"],
        "num_attention_heads": config["n_head"],
        "num_experts": config["num_experts"],
        "num_hidden_layers": config["n_layer"],
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "type_vocab_size": config.get("type_vocab_size", 2),
        "vocab_size": config["vocab_size"],
    }


def _need(config: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises ValueError."""
    for key, value in wanted.items():
        if (said := config.get(key, _UNSAID.get(key, value))) != value:
            raise ValueError(f"{key} is {said!r}; of this architecture only {value!r} is served")
