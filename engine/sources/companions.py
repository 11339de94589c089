"""Repositories that a model's own directory leans on for its tokenizer and its encoder's configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*(/[\w][\w.\-]*)?")
_OF_LABELS = ("labels_tokenizer", "labels_encoder")
_GLINER = (
    ("model_name", "encoder_config", ("", "encoder")),
    ("labels_encoder", "labels_encoder_config", _OF_LABELS),
)
_LEANS = {
    "gliner_config.json": _GLINER,
    "glirel_config.json": _GLINER,
    "config.json": (("label_model_name", "label_model_config", _OF_LABELS),),
}
"""By configuration, the last a GLiClass's: the key that names a repository, the key and the folders that make
it needless."""


def companions(folder: Path) -> list[str]:
    """Names on the hub, of which only papers are wanted: older GLiNERs and GLiRELs hold neither
    tokenizer nor configuration of their encoder, and a GLiClass no tokenizer of its labels."""
    for name, leans in _LEANS.items():
        try:
            said = json.loads((folder / name).read_text("utf-8"))
        except (OSError, ValueError):
            continue
        return [said[key] for key, own, places in leans if _leans(folder, said, key, own, places)]
    return []


def _leans(folder: Path, said: Mapping[str, Any], key: str, own: str, places: tuple[str, ...]) -> bool:
    name = said.get(key)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return False
    tokenizes = any(
        (folder / place / file).is_file()
        for place in places
        for file in ("tokenizer.json", "tokenizer_config.json")
    )
    configured = said.get(own) is not None or any(
        (folder / place / "config.json").is_file() for place in places if place
    )
    return not (tokenizes and configured)
