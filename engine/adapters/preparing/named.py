"""Encoders that a model directory only names: beside it, or in the hub's cache. Nothing is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer
from transformers import AutoConfig, AutoTokenizer

from engine.adapters.forward.weights import BadWeights


def encoder_config(file: Path, beside: str, named: str) -> Any:
    """The configuration of the encoder that `file` leaves to the model `named`. Raises BadWeights."""
    near = file.parent / beside
    where = near if (near / "config.json").is_file() else named
    try:
        return AutoConfig.from_pretrained(where, local_files_only=True)
    except (OSError, ValueError) as error:
        raise BadWeights(
            f"{file} leaves the configuration of its encoder to {named}, which is neither at {near} nor in "
            "the hub's cache"
        ) from error


def named_tokenizer(own: Path, beside: Path, named: str) -> Tokenizer:
    """The one in `own`, else in `beside`, else that of the model `named`. Raises BadWeights."""
    for folder in (own, beside):
        if (folder / "tokenizer.json").is_file():
            return _plain(Tokenizer.from_file(str(folder / "tokenizer.json")))
    for where in (own, beside, named):
        try:
            loaded = AutoTokenizer.from_pretrained(where, local_files_only=True)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue
        return _plain(cast(Tokenizer, loaded.backend_tokenizer))
    raise BadWeights(f"no tokenizer at {own} or {beside}, and {named} is not in the hub's cache")


def _plain(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
