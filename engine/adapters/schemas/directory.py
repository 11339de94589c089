"""A published GLiNER2 directory: config.json, encoder_config/, model.safetensors and a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gliner2.configuration import BoundaryHeadSettings, migrate_config_dict
from tokenizers import Tokenizer
from transformers import AutoConfig

from engine.adapters.forward import weights
from engine.adapters.forward.weights import BadWeights
from engine.adapters.schemas.questions import SPECIAL

SPAN, BOUNDARY = "span", "boundary"
COUNTING = ("count_lstm", "count_lstm_v2", "count_lstm_moe")
POOLING = ("first", "mean", "max")
WIDEST = 8
EMBEDDINGS = "embeddings.word_embeddings.weight"


class Directory:
    """What a model directory says of itself. Reads no weights."""

    def __init__(self, path: Path) -> None:
        """Raises BadWeights for what is no GLiNER2, or none that runs here."""
        self.path = path
        said = weights.model_config(path)
        if said.get("model_type") != "extractor":
            raise BadWeights(
                f"{path} is no GLiNER2: its config.json names the type {said.get('model_type')!r}"
            )
        self.architecture = _one_of(said.get("architecture") or SPAN, (SPAN, BOUNDARY), path)
        self.settings = _settings(said, path) if self.architecture == BOUNDARY else BoundaryHeadSettings()
        self.counting = _one_of(said.get("counting_layer") or COUNTING[0], COUNTING, path)
        self.pooling = _one_of(said.get("token_pooling") or POOLING[0], POOLING, path)
        head = said.get("span_head") or {}
        self.widest = int(said.get("max_width") or head.get("max_width") or WIDEST)
        self.encoder: Any = _encoder(path)

    @property
    def reduce(self) -> str | None:
        """What makes a word of its tokens; None: the first stands for it."""
        return {"mean": "mean", "max": "amax"}.get(self.pooling)

    @property
    def hidden(self) -> int:
        return int(self.encoder.hidden_size)

    def tokenizer(self) -> Tokenizer:
        """With the markers of schemas, which older directories leave to the library."""
        file = self.path / "tokenizer.json"
        if not file.is_file():
            raise BadWeights(f"{self.path} has no tokenizer.json")
        found = Tokenizer.from_file(str(file))
        found.no_padding()
        found.no_truncation()
        found.add_special_tokens([marker for marker in SPECIAL if found.token_to_id(marker) is None])
        if found.get_vocab_size() > self.encoder.vocab_size:
            raise BadWeights(f"{self.path}: its tokenizer has more tokens than its encoder has embeddings")
        return found


def _encoder(path: Path) -> Any:
    """With as many embeddings as are stored: the markers came after the encoder's own configuration."""
    try:
        found = AutoConfig.from_pretrained(path / "encoder_config", local_files_only=True)
    except (OSError, ValueError) as error:
        raise BadWeights(f"{path / 'encoder_config'} holds no configuration of an encoder") from error
    rows = [entry for name, entry in weights.stored_tensors(path).items() if _embeds(name)]
    if len(rows) == 1:
        found.vocab_size = rows[0].shape[0]
    return found


def _settings(said: Mapping[str, Any], path: Path) -> BoundaryHeadSettings:
    """Of the architecture boundary, as the library reads configurations of any age."""
    try:
        return BoundaryHeadSettings(**migrate_config_dict(said)["boundary_head"])
    except (TypeError, ValueError) as error:
        raise BadWeights(f"{path} is a GLiNER2 whose head cannot be read: {error}") from error


def _embeds(name: str) -> bool:
    return name.startswith("encoder.") and name.endswith((EMBEDDINGS, "embeddings.tok_embeddings.weight"))


def _one_of(value: Any, known: tuple[str, ...], path: Path) -> str:
    if value not in known:
        raise BadWeights(f"{path} is a GLiNER2 with {value!r}; what runs here: {', '.join(known)}")
    return str(value)
