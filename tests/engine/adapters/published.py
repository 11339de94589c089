"""Tiny checkpoints as Jina and Nomic publish theirs, and what their own modelling code makes of one text.

transformers has no class of these names, and the repositories' code was not run: each function below is the
plain, unpacked arithmetic of the file that its docstring names, for one text at a time, on the published
names of tensors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear

from tests.engine.adapters.tiny_texts import LONGEST, WORDS, tokenizer

WIDTH, INNER, LAYERS, HEADS, RANK = 32, 48, 2, 4, 3
ADAPTERS = ["retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"]
INSTRUCTIONS = dict.fromkeys(ADAPTERS, "") | {"retrieval.query": "w50 w51 ", "retrieval.passage": "w52 "}

SIZES: dict[str, Any] = {
    "vocab_size": len(WORDS),
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_position_embeddings": LONGEST + 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
FLASH_CODE = "jinaai/xlm-roberta-flash-implementation--configuration_xlm_roberta.XLMRobertaFlashConfig"
TURNED = {
    **SIZES,
    "architectures": ["XLMRobertaModel"],
    "auto_map": {"AutoConfig": FLASH_CODE},
    "model_type": "xlm-roberta",
    "position_embedding_type": "rotary",
    "rotary_emb_base": 200.0,
    "type_vocab_size": 1,
    "use_flash_attn": True,
    "torch_dtype": "bfloat16",
    "lora_adaptations": ADAPTERS,
    "lora_alpha": 2,
    "lora_rank": RANK,
    "lora_dropout_p": 0.0,
    "load_trained_adapters": True,
    "task_instructions": INSTRUCTIONS,
}
ADDED = {
    **SIZES,
    "architectures": ["XLMRobertaForSequenceClassification"],
    "auto_map": {"AutoConfig": "configuration_xlm_roberta.XLMRobertaFlashConfig"},
    "position_embedding_type": "absolute",
    "type_vocab_size": 1,
    "id2label": {"0": "LABEL_0"},
    "label2id": {"LABEL_0": 0},
}
ALIBI = {
    **SIZES,
    "architectures": ["JinaBertForMaskedLM"],
    "auto_map": {"AutoConfig": "jinaai/jina-bert-implementation--configuration_bert.JinaBertConfig"},
    "model_type": "bert",
    "position_embedding_type": "alibi",
    "feed_forward_type": "geglu",
    "num_attention_heads": 4,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "attn_implementation": None,
}
NORMED = {**ALIBI, "num_attention_heads": 2, "feed_forward_type": "reglu", "id2label": {"0": "LABEL_0"}}
NOMIC = {
    "architectures": ["NomicBertModel"],
    "auto_map": {"AutoConfig": "nomic-ai/nomic-bert-2048--configuration_hf_nomic_bert.NomicBertConfig"},
    "model_type": "nomic_bert",
    "activation_function": "gelu",
    "causal": False,
    "prenorm": False,
    "n_embd": WIDTH,
    "n_inner": INNER,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "n_positions": 2048,
    "max_trained_positions": 2048,
    "vocab_size": len(WORDS),
    "type_vocab_size": 1,
    "layer_norm_epsilon": 1e-5,
    "num_experts": 4,
    "moe_top_k": 2,
    "moe_every_n_layers": 2,
    "num_shared_experts": 0,
    "moe_normalize_expert_weights": False,
    "rotary_emb_base": 200,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "qkv_proj_bias": True,
    "mlp_fc1_bias": True,
    "mlp_fc2_bias": True,
    "pad_token_id": 1,
}


def saved(config: Mapping[str, Any], tensors: Mapping[str, Tensor], to: Path, types: bool = False) -> Path:
    to.mkdir(parents=True, exist_ok=True)
    (to / "config.json").write_text(json.dumps(config))
    save_file(
        {name: t.contiguous() for name, t in tensors.items()}, to / "model.safetensors", {"format": "pt"}
    )
    tokenizer("[CLS] $A [SEP]", types).save_pretrained(to)
    return to


class Drawn:
    """Random tensors by their published names."""

    def __init__(self, seed: int) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._from = torch.Generator().manual_seed(seed)

    def weight(self, name: str, *shape: int, size: float = 0.3) -> None:
        self.tensors[name] = size * torch.randn(*shape, generator=self._from)

    def layer(self, name: str, inside: int, out: int, bias: bool = True) -> None:
        self.weight(f"{name}.weight", out, inside)
        if bias:
            self.weight(f"{name}.bias", out)

    def norm(self, name: str) -> None:
        self.weight(f"{name}.weight", WIDTH)
        self.tensors[f"{name}.weight"] += 1
        self.weight(f"{name}.bias", WIDTH)


def flash(adapted: bool, positions: bool, labels: int = 0) -> dict[str, Tensor]:
    """Of XLM-RoBERTa by Jina; `adapted` with five adapters beside every matrix and table."""
    drawn = Drawn(1)
    for name, rows in (
        ("word", len(WORDS)),
        ("token_type", 1),
        *[("position", LONGEST + 2)][: int(positions)],
    ):
        drawn.weight(f"roberta.embeddings.{name}_embeddings.weight", rows, WIDTH)
    drawn.norm("roberta.emb_ln")
    for number in range(LAYERS):
        at = f"roberta.encoder.layers.{number}."
        drawn.layer(f"{at}mixer.Wqkv", WIDTH, 3 * WIDTH)
        drawn.layer(f"{at}mixer.out_proj", WIDTH, WIDTH)
        drawn.layer(f"{at}mlp.fc1", WIDTH, INNER)
        drawn.layer(f"{at}mlp.fc2", INNER, WIDTH)
        drawn.norm(f"{at}norm1")
        drawn.norm(f"{at}norm2")
    if labels:
        drawn.layer("classifier.dense", WIDTH, WIDTH)
        drawn.layer("classifier.out_proj", WIDTH, labels)
        return drawn.tensors
    drawn.layer("roberta.pooler.dense", WIDTH, WIDTH)
    if adapted:
        _beside(drawn)
    return drawn.tensors


def _beside(drawn: Drawn) -> None:
    matrices = [name for name, t in drawn.tensors.items() if t.ndim == 2]
    for name in matrices:
        layer = name.removesuffix(".weight")
        out, inside = drawn.tensors[name].shape
        drawn.tensors[f"{layer}.parametrizations.weight.original"] = drawn.tensors.pop(name)
        first, second = ((RANK, inside), (out, RANK))
        if "embeddings" in layer:
            first, second = (out, RANK), (RANK, inside)
        drawn.weight(f"{layer}.parametrizations.weight.0.lora_A", len(ADAPTERS), *first)
        drawn.weight(f"{layer}.parametrizations.weight.0.lora_B", len(ADAPTERS), *second)


def alibi(normed: bool, labels: int = 0) -> dict[str, Tensor]:
    """Of JinaBERT; `normed` as `jina-bert-v2-qk-post-norm` names its layers."""
    drawn = Drawn(2)
    before = "bert." if labels else ""
    for name, rows in (("word", len(WORDS)), ("token_type", 2)):
        drawn.weight(f"{before}embeddings.{name}_embeddings.weight", rows, WIDTH)
    drawn.norm(f"{before}embeddings.LayerNorm")
    for number in range(LAYERS):
        at = f"{before}encoder.layer.{number}."
        for part in ("query", "key", "value"):
            drawn.layer(f"{at}attention.self.{part}", WIDTH, WIDTH)
        drawn.layer(f"{at}attention.output.dense", WIDTH, WIDTH)
        drawn.norm(f"{at}attention.output.LayerNorm")
        up, down = ("up_gated_layer", "down_layer") if normed else ("gated_layers", "wo")
        drawn.layer(f"{at}mlp.{up}", WIDTH, 2 * INNER, bias=False)
        drawn.layer(f"{at}mlp.{down}", INNER, WIDTH)
        norms = ("attention.self.layer_norm_q", "attention.self.layer_norm_k", "layer_norm_1", "layer_norm_2")
        for norm in norms if normed else ("mlp.layernorm",):
            drawn.norm(f"{at}{norm}")
    drawn.layer(f"{before}pooler.dense", WIDTH, WIDTH)
    if labels:
        drawn.layer("classifier", WIDTH, labels)
    return drawn.tensors


def nomic() -> dict[str, Tensor]:
    """Of `nomic-embed-text-v2-moe`: every second layer has experts."""
    drawn = Drawn(3)
    for name, rows in (("word", len(WORDS)), ("token_type", 1)):
        drawn.weight(f"embeddings.{name}_embeddings.weight", rows, WIDTH)
    drawn.norm("emb_ln")
    for number in range(LAYERS):
        at = f"encoder.layers.{number}."
        drawn.layer(f"{at}attn.Wqkv", WIDTH, 3 * WIDTH)
        drawn.layer(f"{at}attn.out_proj", WIDTH, WIDTH)
        drawn.norm(f"{at}norm1")
        drawn.norm(f"{at}norm2")
        if number % 2:
            drawn.weight(f"{at}mlp.router.layer.weight", 4, WIDTH, size=1.0)
            drawn.weight(f"{at}mlp.experts.mlp.w1", 4 * INNER, WIDTH)
            drawn.weight(f"{at}mlp.experts.mlp.w2", 4 * INNER, WIDTH)
            drawn.weight(f"{at}mlp.experts.bias", WIDTH)
        else:
            drawn.layer(f"{at}mlp.fc1", WIDTH, INNER)
            drawn.layer(f"{at}mlp.fc2", INNER, WIDTH)
    return drawn.tensors


class Checkpoint:
    """Layers of a checkpoint, applied by their published names; with one adapter or with none."""

    def __init__(self, tensors: Mapping[str, Tensor], adapter: str | None = None) -> None:
        self.tensors = tensors
        self._number = None if adapter is None else ADAPTERS.index(adapter)

    def matrix(self, layer: str) -> Tensor:
        plain = self.tensors.get(f"{layer}.weight")
        if plain is not None:
            return plain
        beside = f"{layer}.parametrizations.weight."
        weight = self.tensors[f"{beside}original"]
        if self._number is None:
            return weight
        first, second = (self.tensors[f"{beside}0.lora_{part}"][self._number] for part in "AB")
        change = first @ second if "embeddings" in layer else second @ first
        return weight + change * (TURNED["lora_alpha"] / RANK)

    def linear(self, layer: str, rows: Tensor) -> Tensor:
        return linear(rows, self.matrix(layer), self.tensors.get(f"{layer}.bias"))

    def norm(self, layer: str, rows: Tensor, eps: float) -> Tensor:
        weight, bias = self.tensors[f"{layer}.weight"], self.tensors[f"{layer}.bias"]
        return layer_norm(rows, weight.shape, weight, bias, eps)


def attended(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    """(tokens, heads, size) each; `bias` is added to the scores (heads, tokens, tokens)."""
    scores = torch.einsum("ihd,jhd->hij", query, key) / math.sqrt(query.shape[-1]) + bias
    return torch.einsum("hij,jhd->ihd", scores.softmax(-1), value).flatten(1)


def turned(states: Tensor, base: float) -> Tensor:
    """Rotary positions of halves (GPT-NeoX), in float32: (tokens, heads, size)."""
    size = states.shape[-1]
    angles = torch.outer(
        torch.arange(len(states)).float(), base ** (-torch.arange(0, size, 2).float() / size)
    )
    cosines, sines = (torch.cat([f(angles)] * 2, -1)[:, None] for f in (torch.cos, torch.sin))
    first, second = states.chunk(2, -1)
    return states * cosines + torch.cat([-second, first], -1) * sines


def read_flash(tensors: Mapping[str, Tensor], ids: Tensor, adapter: str | None = None) -> Tensor:
    """`xlm-roberta-flash-implementation`: modeling_xlm_roberta.py, embedding.py, block.py, mha.py, and of
    adapters modeling_lora.py. (tokens, width)."""
    at = Checkpoint(tensors, adapter)
    added = "roberta.embeddings.position_embeddings.weight" in tensors
    rows = at.matrix("roberta.embeddings.word_embeddings")[ids]
    rows = rows + at.matrix("roberta.embeddings.token_type_embeddings")[0]
    if added:
        places = torch.arange(len(ids)) + SIZES["pad_token_id"] + 1
        rows = rows + at.matrix("roberta.embeddings.position_embeddings")[places]
    rows = at.norm("roberta.emb_ln", rows, 1e-5)
    for number in range(LAYERS):
        layer = f"roberta.encoder.layers.{number}."
        fused = at.linear(f"{layer}mixer.Wqkv", rows).view(len(ids), 3, HEADS, -1)
        query, key, value = fused.unbind(1)
        if not added:
            query, key = turned(query, TURNED["rotary_emb_base"]), turned(key, TURNED["rotary_emb_base"])
        rows = at.norm(
            f"{layer}norm1", rows + at.linear(f"{layer}mixer.out_proj", attended(query, key, value)), 1e-5
        )
        inner = at.linear(f"{layer}mlp.fc2", gelu(at.linear(f"{layer}mlp.fc1", rows)))
        rows = at.norm(f"{layer}norm2", rows + inner, 1e-5)
    return rows


def judged_flash(tensors: Mapping[str, Tensor], ids: Tensor) -> float:
    """The head of its XLMRobertaForSequenceClassification."""
    at = Checkpoint(tensors)
    first = torch.tanh(at.linear("classifier.dense", read_flash(tensors, ids)[0]))
    return float(at.linear("classifier.out_proj", first))


def read_alibi(
    tensors: Mapping[str, Tensor], config: Mapping[str, Any], ids: Tensor, types: Tensor | None = None
) -> Tensor:
    """`modeling_bert.py` of `jina-bert-implementation`, or of `jina-bert-v2-qk-post-norm` where the tensors
    are so called. (tokens, width)."""
    at, heads = Checkpoint(tensors), config["num_attention_heads"]
    before = "bert." if "bert.embeddings.LayerNorm.weight" in tensors else ""
    kinds = torch.zeros_like(ids) if types is None else types
    rows = at.matrix(f"{before}embeddings.word_embeddings")[ids]
    rows = rows + at.matrix(f"{before}embeddings.token_type_embeddings")[kinds]
    rows = at.norm(f"{before}embeddings.LayerNorm", rows, 1e-5)
    places = torch.arange(len(ids))
    slopes = torch.tensor([2 ** (-8 * (head + 1) / heads) for head in range(heads)])
    bias = -slopes[:, None, None] * (places[None] - places[:, None]).abs()
    act = {"geglu": gelu, "reglu": torch.relu}[config["feed_forward_type"]]
    for number in range(LAYERS):
        layer = f"{before}encoder.layer.{number}."
        parts = [at.linear(f"{layer}attention.self.{part}", rows) for part in ("query", "key", "value")]
        normed = f"{layer}layer_norm_1.weight" in tensors
        if normed:
            parts[0] = at.norm(f"{layer}attention.self.layer_norm_q", parts[0], 1e-5)
            parts[1] = at.norm(f"{layer}attention.self.layer_norm_k", parts[1], 1e-5)
        seen = attended(*(part.view(len(ids), heads, -1) for part in parts), bias)
        seen = at.linear(f"{layer}attention.output.dense", seen)
        seen = at.norm(f"{layer}attention.output.LayerNorm", seen + rows, 1e-5)
        if normed:
            rows = at.norm(f"{layer}layer_norm_1", rows + seen, 1e-5)
            both = at.linear(f"{layer}mlp.up_gated_layer", rows)
            inner = at.linear(f"{layer}mlp.down_layer", both[:, :INNER] * act(both[:, INNER:]))
            rows = at.norm(f"{layer}layer_norm_2", rows + inner, 1e-5)
            continue
        both = at.linear(f"{layer}mlp.gated_layers", seen)
        inner = at.linear(f"{layer}mlp.wo", act(both[:, :INNER]) * both[:, INNER:])
        rows = at.norm(f"{layer}mlp.layernorm", inner + seen, 1e-5)
    return rows


def judged_alibi(
    tensors: Mapping[str, Tensor], config: Mapping[str, Any], ids: Tensor, types: Tensor
) -> float:
    """The head of its JinaBertForSequenceClassification."""
    at = Checkpoint(tensors)
    pooled = torch.tanh(at.linear("bert.pooler.dense", read_alibi(tensors, config, ids, types)[0]))
    return float(at.linear("classifier", pooled))


def read_nomic(tensors: Mapping[str, Tensor], ids: Tensor) -> Tensor:
    """`modeling_hf_nomic_bert.py` of `nomic-bert-2048`, with its NomicMoELayer. (tokens, width)."""
    at = Checkpoint(tensors)
    rows = at.matrix("embeddings.word_embeddings")[ids] + at.matrix("embeddings.token_type_embeddings")[0]
    rows = at.norm("emb_ln", rows, 1e-5)
    for number in range(LAYERS):
        layer = f"encoder.layers.{number}."
        query, key, value = at.linear(f"{layer}attn.Wqkv", rows).view(len(ids), 3, HEADS, -1).unbind(1)
        seen = attended(turned(query, 200.0), turned(key, 200.0), value)
        rows = at.norm(f"{layer}norm1", rows + at.linear(f"{layer}attn.out_proj", seen), 1e-5)
        sparse = f"{layer}mlp.router.layer.weight" in tensors
        inner = _experts(at, layer, rows) if sparse else None
        if inner is None:
            inner = at.linear(f"{layer}mlp.fc2", gelu(at.linear(f"{layer}mlp.fc1", rows)))
        rows = at.norm(f"{layer}norm2", rows + inner, 1e-5)
    return rows


def _experts(at: Checkpoint, layer: str, rows: Tensor) -> Tensor:
    first, second = (at.tensors[f"{layer}mlp.experts.mlp.{w}"].view(4, INNER, WIDTH) for w in ("w1", "w2"))
    made = []
    for row in rows:
        chances, chosen = at.linear(f"{layer}mlp.router.layer", row).softmax(-1).topk(2)
        parts = [share * (gelu(first[e] @ row) @ second[e]) for share, e in zip(chances, chosen, strict=True)]
        made.append(parts[0] + parts[1] + at.tensors[f"{layer}mlp.experts.bias"])
    return torch.stack(made)
