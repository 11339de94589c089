"""The heads of transformers models, applied to packed states: the library's own want padded batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.adapters.forward.packed import Hidden
from engine.adapters.forward.pooling import pool
from engine.adapters.forward.weights import BadWeights, Stored, stored_tensors

Head = Callable[[Any, Tensor], Tensor]


def _pooler(model: Any, first: Tensor) -> Tensor:
    return cast(Tensor, model.classifier(model.base_model.pooler(first[:, None])))


def _own_pooler(model: Any, first: Tensor) -> Tensor:
    return cast(Tensor, model.classifier(model.pooler(first[:, None])))


def _classifier(model: Any, first: Tensor) -> Tensor:
    return cast(Tensor, model.classifier(first[:, None]))


def _albert(model: Any, first: Tensor) -> Tensor:
    base = model.base_model
    return cast(Tensor, model.classifier(base.pooler_activation(base.pooler(first))))


def _distilbert(model: Any, first: Tensor) -> Tensor:
    return cast(Tensor, model.classifier(torch.relu(model.pre_classifier(first))))


def _modernbert(model: Any, pooled: Tensor) -> Tensor:
    return cast(Tensor, model.classifier(model.head(pooled)))


def _score(model: Any, last: Tensor) -> Tensor:
    return cast(Tensor, model.score(last))


CLASSIFIERS: Mapping[str, tuple[str, Head]] = {
    "albert": ("cls", _albert),
    "bert": ("cls", _pooler),
    "camembert": ("cls", _classifier),
    "deberta": ("cls", _own_pooler),
    "deberta-v2": ("cls", _own_pooler),
    "distilbert": ("cls", _distilbert),
    "electra": ("cls", _classifier),
    "ernie": ("cls", _pooler),
    "llama": ("last", _score),
    "mistral": ("last", _score),
    "modernbert": ("cls", _modernbert),  # or mean: its configuration says
    "mpnet": ("cls", _classifier),
    "qwen2": ("last", _score),
    "qwen3": ("last", _score),
    "roberta": ("cls", _classifier),
    "xlm-roberta": ("cls", _classifier),
}
"""By `model_type`: how the sequence becomes one vector, and the vector one row of logits."""


def sequence_logits(model: PreTrainedModel, hidden: Hidden) -> Tensor:
    """(sequences, labels), in the caller's order: what an AutoModelForSequenceClassification answers.

    Raises BadWeights for a family whose head is not known here.
    """
    kind = model.config.model_type
    if kind not in CLASSIFIERS:
        raise BadWeights(f"no sequence classifier of family {kind!r}; there are: {', '.join(CLASSIFIERS)}")
    how, head = CLASSIFIERS[kind]
    return head(model, pool(hidden, getattr(model.config, "classifier_pooling", how)))


def token_logits(model: PreTrainedModel, states: Tensor) -> Tensor:
    """(tokens, vocabulary): what an AutoModelForMaskedLM answers."""
    parts = cast(Any, model)
    match model.config.model_type:
        case "bert" | "ernie":
            return cast(Tensor, parts.cls(states))
        case "distilbert":
            transformed = parts.vocab_layer_norm(parts.activation(parts.vocab_transform(states)))
            return cast(Tensor, parts.vocab_projector(transformed))
        case "modernbert":
            return cast(Tensor, parts.decoder(parts.head(states)))
        case "electra":
            return cast(Tensor, parts.generator_lm_head(parts.generator_predictions(states)))
        case "camembert" | "mpnet" | "roberta" | "xlm-roberta":
            return cast(Tensor, parts.lm_head(states))
    raise BadWeights(f"no masked language model of family {model.config.model_type!r}")


def projection(path: Path) -> dict[str, Stored]:
    """A ColBERT directory's last, linear layer, (token dims, hidden), as `read` takes it; else empty.

    It is kept beside the encoder (Stanford's layout) or in a module (sentence-transformers').
    """
    for directory in (path, path / "1_Dense"):
        if (directory / "model.safetensors").is_file():
            found = stored_tensors(directory)
            if "linear.weight" in found:
                return {"linear.weight": found["linear.weight"]}
    return {}
