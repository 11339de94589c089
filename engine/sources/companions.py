"""Repositories that a model's own directory leans on for its tokenizer and its encoder's configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONFIGS = ("gliner_config.json", "glirel_config.json")
_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*(/[\w][\w.\-]*)?")
_LEANS = (
    ("model_name", "encoder_config", ("", "encoder")),
    ("labels_encoder", "labels_encoder_config", ("labels_tokenizer", "labels_encoder")),
)
"""Of a GLiNER or GLiREL: the key that names a repository, the key and the folders that make it needless."""


def companions(folder: Path) -> list[str]:
    """Names on the hub, of which only papers are wanted: older GLiNERs and GLiRELs hold neither
    tokenizer nor configuration of their encoder."""
    for name in CONFIGS:
        try:
            said = json.loads((folder / name).read_text("utf-8"))
        except (OSError, ValueError):
            continue
        return [said[key] for key, own, places in _LEANS if _leans(folder, said, key, own, places)]
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
