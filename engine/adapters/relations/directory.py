"""A published GLiREL directory: glirel_config.json and weights; it names the encoder that it was made of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engine.adapters.forward import weights
from engine.adapters.forward.weights import BadWeights
from engine.adapters.preparing.named import encoder_config, named_tokenizer

CONFIG = "glirel_config.json"
ENCODER = "token_rep_layer.bert_layer.model."
RELATION, SEPARATOR = "[REL]", "[SEP]"
ADDED = ("[FLERT]", RELATION, SEPARATOR, "[E]", "[/E]")
"""To the encoder's own tokens, in this order, where they are missing."""
POOLINGS = ("first", "last", "mean", "first_last")
STRATEGIES = ("ent_token", "label", "both")
MARKERS = ("markerv1", "markerv2")
SCORERS = ("dot", "dot_thresh", "dot_norm", "concat_proj")


@dataclass(frozen=True, slots=True)
class Shape:
    """What the configuration says of the network."""

    hidden: int
    pooling: str
    labels: str
    """Which tokens of a label stand for it."""
    spans: str
    scorer: str
    words: int
    """Of a text, at once."""
    distance: int | None
    """The most words between a later entity and an earlier one as its tail."""


class Directory:
    """What a model directory says of itself. Reads no weights."""

    def __init__(self, path: Path) -> None:
        """Raises BadWeights for what is no GLiREL, or none that runs here."""
        self.path = path
        said = _read(path)
        if said.get("rel_mode", "marker") != "marker":
            raise BadWeights(f"{path} is a GLiREL with the rel_mode {said['rel_mode']!r}; 'marker' runs here")
        if said.get("add_entity_markers"):
            raise BadWeights(f"{path} is a GLiREL with markers around entities, which does not run here")
        self._named = str(said.get("model_name"))
        self.shape = Shape(
            int(said["hidden_size"]),
            _one_of(said.get("subtoken_pooling", "first"), POOLINGS, path),
            _one_of(said.get("label_embed_strategy", "ent_token"), STRATEGIES, path),
            _one_of(said.get("span_marker_mode", MARKERS[0]), MARKERS, path),
            _one_of(said.get("scorer", "dot"), SCORERS, path),
            int(said.get("max_len") or 384),
            None if said.get("max_entity_pair_distance") is None else int(said["max_entity_pair_distance"]),
        )
        self.encoder: Any = encoder_config(path / CONFIG, "encoder", self._named)
        rows = [
            entry.shape[0]
            for name, entry in weights.stored_tensors(path).items()
            if name.startswith(ENCODER) and "embeddings." in name and "word_embeddings.weight" in name
        ]
        if rows:
            self.encoder.vocab_size = rows[0]

    def tokenizer(self) -> Tokenizer:
        found = named_tokenizer(self.path, self.path / "encoder", self._named)
        if found.token_to_id(ADDED[0]) is None:
            found.add_special_tokens([ADDED[0]])
        found.add_tokens([token for token in ADDED[1:] if found.token_to_id(token) is None])
        if found.get_vocab_size() > self.encoder.vocab_size:
            raise BadWeights(f"{self.path}: its tokenizer has more tokens than its encoder has embeddings")
        return found


def _read(path: Path) -> dict[str, Any]:
    try:
        said = json.loads((path / CONFIG).read_text("utf-8"))
        return {**said, "hidden_size": int(said["hidden_size"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadWeights(f"{path / CONFIG} cannot be read: {error!r}") from error


def _one_of(value: Any, known: tuple[str, ...], path: Path) -> str:
    if value not in known:
        raise BadWeights(f"{path} is a GLiREL with {value!r}; what runs here: {', '.join(known)}")
    return str(value)
