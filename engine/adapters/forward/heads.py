"""The heads of transformers models, applied to packed states: the library's own want padded batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from engine.adapters.forward.onnx import Network, OnnxModel
from engine.adapters.forward.packed import Hidden
from engine.adapters.forward.pooling import pool
from engine.adapters.forward.weights import BadWeights

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


def _eurobert(model: Any, pooled: Tensor) -> Tensor:
    return cast(Tensor, model.classifier(model.activation(model.dense(pooled))))


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
    "eurobert": ("cls", _eurobert),  # or what its configuration says
    "gemma": ("last", _score),
    "gemma3_text": ("last", _score),
    "gte": ("cls", _pooler),
    "jina_bert": ("cls", _pooler),
    "jina_embeddings_v3": ("cls", _classifier),
    "llama": ("last", _score),
    "mistral": ("last", _score),
    "modernbert": ("cls", _modernbert),  # or mean: its configuration says
    "mpnet": ("cls", _classifier),
    "new": ("cls", _pooler),
    "nomic_bert": ("cls", _pooler),
    "qwen2": ("last", _score),
    "qwen3": ("last", _score),
    "roberta": ("cls", _classifier),
    "xlm-roberta": ("cls", _classifier),
}
"""By `model_type`: how the sequence becomes one vector, and the vector one row of logits."""


def sequence_logits(model: Network, hidden: Hidden) -> Tensor:
    """(sequences, labels), in the caller's order: what an AutoModelForSequenceClassification answers.

    Raises BadWeights for a family whose head is not known here.
    """
    if isinstance(model, OnnxModel):
        return hidden.states
    kind = model.config.model_type
    if kind not in CLASSIFIERS:
        raise BadWeights(f"no sequence classifier of family {kind!r}; there are: {', '.join(CLASSIFIERS)}")
    how, head = CLASSIFIERS[kind]
    match getattr(model.config, "classifier_pooling", how):
        case "bos":
            return head(model, pool(hidden, "cls"))
        case "late":  # each token is judged, and the judgements are averaged
            return pool(Hidden(head(model, hidden.states), hidden.layout), "mean")
        case named:
            return head(model, pool(hidden, named))


def token_logits(model: Any, states: Tensor) -> Tensor:
    """(tokens, vocabulary): what an AutoModelForMaskedLM answers."""
    match model.config.model_type:
        case "bert" | "ernie" | "nomic_bert":
            return cast(Tensor, model.cls(states))
        case "albert":
            return cast(Tensor, model.predictions(states))
        case "deberta" | "deberta-v2":
            if model.config.legacy:
                return cast(Tensor, model.cls(states))
            words = model.base_model.embeddings.word_embeddings
            return cast(Tensor, model.lm_predictions(states[None], words)[0])
        case "distilbert":
            transformed = model.vocab_layer_norm(model.activation(model.vocab_transform(states)))
            return cast(Tensor, model.vocab_projector(transformed))
        case "modernbert":
            return cast(Tensor, model.decoder(model.head(states)))
        case "electra":
            return cast(Tensor, model.generator_lm_head(model.generator_predictions(states)))
        case "camembert" | "eurobert" | "jina_embeddings_v3" | "mpnet" | "new" | "roberta" | "xlm-roberta":
            return cast(Tensor, model.lm_head(states))
    raise BadWeights(f"no masked language model of family {model.config.model_type!r}")
