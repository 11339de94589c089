"""A published GLiNER directory: its configuration, what it is built of, and where its tokenizers are.

Older directories hold neither the encoder's configuration nor a tokenizer and name the model that they
were made of; that one must then lie beside (`encoder/`, `labels_encoder/`) or in the hub's cache. Nothing
is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from gliner import config as kinds  # type: ignore[import-untyped]
from gliner.data_processing.tokenizer import WordsSplitter  # type: ignore[import-untyped]
from gliner.modeling import base as networks  # type: ignore[import-untyped]
from tokenizers import Tokenizer

from engine.adapters.forward import weights
from engine.adapters.forward.weights import BadWeights
from engine.adapters.preparing.named import encoder_config, named_tokenizer
from engine.adapters.preparing.words import Splitter

CONFIG = "gliner_config.json"
FETCHES = ("stanza", "hanlp")
"""Splitters of words that look for models of their own when a text comes."""
PICKLES = ("pytorch_model.bin", "model.bin", "pytorch_model.pt")

VARIANTS: Mapping[tuple[str, bool], tuple[type[Any], type[Any]]] = {
    ("plain", False): (kinds.UniEncoderSpanConfig, networks.UniEncoderSpanModel),
    ("plain", True): (kinds.UniEncoderTokenConfig, networks.UniEncoderTokenModel),
    ("labels", False): (kinds.BiEncoderSpanConfig, networks.BiEncoderSpanModel),
    ("labels", True): (kinds.BiEncoderTokenConfig, networks.BiEncoderTokenModel),
    ("relations", False): (kinds.UniEncoderSpanRelexConfig, networks.UniEncoderSpanRelexModel),
    ("relations", True): (kinds.UniEncoderTokenRelexConfig, networks.UniEncoderTokenRelexModel),
}
"""Configuration and network, by what reads the labels and whether spans are told by their tokens."""


class Directory:
    """What a model directory says of itself. Reads no weights."""

    def __init__(self, path: Path) -> None:
        """Raises BadWeights for what is no GLiNER, or none that runs here."""
        self.path = path
        self._said = _read(path)
        _refuse_pickles(path)
        self.token_level = self._said.get("span_mode") == "token_level"
        self.reads = _variant(path, self._said)
        kind, self.network = VARIANTS[self.reads, self.token_level]
        said = {name: value for name, value in self._said.items() if name != "model_type"}
        self.config = kind(**said)
        if self.config.encoder_config is None:
            self.config.encoder_config = encoder_config(path / CONFIG, "encoder", self.config.model_name)
        if self.config.vocab_size > 0:
            self.config.encoder_config.vocab_size = self.config.vocab_size
        if self.reads == "labels" and self.config.labels_encoder_config is None:
            named = self.config.labels_encoder
            self.config.labels_encoder_config = encoder_config(path / CONFIG, "labels_encoder", named)

    @property
    def relations(self) -> bool:
        return self.reads == "relations"

    @property
    def bi_encoder(self) -> bool:
        return self.reads == "labels"

    def tokenizer(self) -> Tokenizer:
        """Of the texts, with GLiNER's markers added where its directory left that to the library."""
        found = named_tokenizer(self.path, self.path / "encoder", self.config.model_name)
        if not self.bi_encoder:
            markers = [self.config.ent_token, self.config.sep_token]
            added = [*markers, self.config.rel_token] if self.relations else ["[FLERT]", *markers]
            if found.token_to_id(self.config.ent_token) is None:
                found.add_special_tokens(added)
        return found

    def splitter(self) -> Splitter:
        """Raises BadWeights for one that is not installed, or fetches models while it works."""
        kind = str(self.config.words_splitter_type)
        if kind in FETCHES:
            raise BadWeights(
                f"{self.path} splits words by {kind}, which fetches models and does not run here"
            )
        try:
            return cast(Splitter, WordsSplitter(splitter_type=kind))
        except (ImportError, OSError, ValueError) as error:
            raise BadWeights(
                f"{self.path} splits words by {kind}, which is not installed: {error}"
            ) from error

    def labels_tokenizer(self) -> Tokenizer:
        return named_tokenizer(
            self.path / "labels_tokenizer", self.path / "labels_encoder", self.config.labels_encoder
        )

    def marker(self, tokenizer: Tokenizer, name: str, stored: int) -> int:
        """The id of a marker: as the configuration has it, or as the tokenizer does."""
        found = stored if stored >= 0 else tokenizer.token_to_id(name)
        if found is None:
            raise BadWeights(f"{self.path}: its tokenizer has no {name}")
        return int(found)


def _read(path: Path) -> dict[str, Any]:
    try:
        return cast(dict[str, Any], json.loads((path / CONFIG).read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise BadWeights(f"{path / CONFIG} cannot be read: {error}") from error


def _variant(path: Path, said: Mapping[str, Any]) -> str:
    """What reads the labels. Raises BadWeights for the kinds that do not run here."""
    unknown = {
        "a decoder that writes labels": said.get("labels_decoder"),
        "a causal decoder that reads a stream": said.get("model_type") == "gliner_streaming_span",
        "a fusion of its encoder's layers": said.get("fuse_layers"),
        "prompts computed ahead": said.get("precomputed_prompts_mode"),
        "spans represented beside their tokens": said.get("represent_spans")
        and said.get("relations_layer") is None,
    }
    if wrong := [what for what, there in unknown.items() if there]:
        raise BadWeights(f"{path} is a GLiNER with {wrong[0]}, which does not run here")
    if said.get("relations_layer") is not None:
        return "relations"
    return "plain" if said.get("labels_encoder") is None else "labels"


def _refuse_pickles(path: Path) -> None:
    """Raises BadWeights that says what to do about weights in a pickle, which can run code."""
    held = [name for name in PICKLES if (path / name).is_file()]
    if held and not any(path.glob("*.safetensors")):
        raise BadWeights(
            f"{path / held[0]} is a pickle, which may run code, and is not opened; give its source "
            "`convert: torch_checkpoint`, which makes safetensors of it in a process of its own"
        )


def stored(path: Path) -> dict[str, weights.Stored]:
    """The tensors by the names of the network."""
    found = weights.stored_tensors(path)
    wrapped = all(name.startswith("model.") for name in found)
    return {name.removeprefix("model.") if wrapped else name: tensor for name, tensor in found.items()}
