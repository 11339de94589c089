"""Repositories of tests, as the hub's library keeps them in its cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMMIT = "a" * 40


def cached(cache: Path, name: str, files: Mapping[str, Any]) -> Path:
    """The snapshot's folder. What is no text is written as JSON."""
    root = cache / f"models--{name.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs/main").write_text(COMMIT)
    folder = root / "snapshots" / COMMIT
    for path, held in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(held if isinstance(held, str) else json.dumps(held))
    return folder


def card(**said: Any) -> str:
    return "---\n" + "".join(f"{key}: {json.dumps(value)}\n" for key, value in said.items()) + "---\n# It\n"


MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
BERT = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": 32,
    "max_position_embeddings": 64,
}
EMBEDDER = {
    "config.json": BERT,
    "modules.json": MODULES,
    "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
    "sentence_bert_config.json": {"max_seq_length": 48},
    "tokenizer_config.json": {"model_max_length": 64},
    "README.md": card(license="apache-2.0"),
}
