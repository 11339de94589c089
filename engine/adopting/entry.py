"""An entry of the catalogue for a repository: what its papers say, and nothing that they do not. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.adopting.families import Served, served
from engine.adopting.repository import Repository
from engine.entry import ModelSpec
from engine.requests import OutputType

TEXTS = frozenset(
    ["causal_lm", "cross_encoder", "text_classifier", "text_encoder", "token_classifier", "zero_shot"]
)
LONGEST = 32768
"""Tokens of an entry that nobody looked at: what all of them take counts in the memory plan."""
_UNLIMITED = 10**9
_SPDX = {"agpl-3.0": "AGPL-3.0-only", "gpl-3.0": "GPL-3.0-only", "mit": "MIT", "apache-2.0": "Apache-2.0"}
"""Where the hub's names differ by more than capitals."""
_AS_WRITTEN = frozenset(["other", "unknown", "gemma"])


def entry(repository: Repository) -> ModelSpec:
    """Raises InvalidInput for an architecture that no family here serves."""
    found = served(repository)
    held: dict[str, Any] = {
        "id": repository.name,
        "family": found.family,
        "tasks": [str(task) for task in found.tasks],
        "outputs": [str(kind) for kind in found.outputs],
        "dims": _dims(repository, found),
        "max_tokens": _max_tokens(repository, found),
        "dtype": "bfloat16" if _stored(repository.config) == "bfloat16" else None,
        **found.keys,
        **_adapters(repository),
        "sources": [_source(repository)],
        "licence": licence(repository.card),
        "description": f"Adopted from what {repository.name} says of itself.",
        "notes": _notes(repository, found),
    }
    return ModelSpec.model_validate(
        {key: value for key, value in held.items() if value not in (None, {}, [], "")}
    )


def _source(repository: Repository) -> dict[str, str]:
    return {"hub": repository.name} | ({"convert": "torch_checkpoint"} if repository.pickles else {})


def _adapters(repository: Repository) -> dict[str, Any]:
    """Those that its checkpoint holds, and which of them read queries and documents by themselves."""
    names = [str(name) for name in repository.config.get("lora_adaptations") or ()]
    if not names:
        return {}
    roles = {"query": "retrieval.query", "document": "retrieval.passage"}
    loras = {name: {"sources": [_source(repository)]} for name in names}
    named = {role: name for role, name in roles.items() if name in names}
    return {"loras": loras, "options": {"adapters": named} if named else {}}


def licence(card: Mapping[str, Any]) -> str:
    """The card's, as SPDX writes it where it is one of theirs."""
    said = card.get("license")
    said = str(said[0] if isinstance(said, list) and said else said or "unknown")
    if said == "other":
        said = str(card.get("license_name") or said)
    if said in _AS_WRITTEN:
        return said
    return _SPDX.get(said, said.upper() if said.startswith(("cc-", "bsd-", "afl-")) else said)


def _dims(repository: Repository, found: Served) -> dict[str, int]:
    if OutputType.DENSE not in found.outputs:
        return {}
    widths = [
        repository.of(f"{folder}/config.json").get("out_features")
        for kind, folder in repository.modules
        if kind == "Dense"
    ]
    width = widths[-1] if widths else _width(repository.config, found.family)
    return {"dense": int(width)} if width else {}


def _width(config: Mapping[str, Any], family: str) -> int | None:
    if family == "multimodal_encoder":
        return (config.get("text_config") or {}).get("hidden_size")
    if family == "image_text_encoder":
        return config.get("projection_dim") or (config.get("text_config") or {}).get("projection_size")
    names = ("hidden_size", "dim", "n_embd") if family == "text_encoder" else ("hidden_size",)
    return next((config[name] for name in names if isinstance(config.get(name), int)), None)


def _max_tokens(repository: Repository, found: Served) -> int | None:
    """The directory's own limit, then the tokenizer's, then the model's positions where it writes."""
    if found.family == "vision_lm":
        text = repository.config.get("text_config") or repository.config
        return min(int(text.get("max_position_embeddings") or LONGEST), LONGEST)
    if found.family not in TEXTS:
        return None
    config = repository.config
    if found.family == "causal_lm":
        return min(int(config.get("max_position_embeddings") or LONGEST), LONGEST)
    said = (
        repository.of("sentence_bert_config.json").get("max_seq_length"),
        repository.of("tokenizer_config.json").get("model_max_length"),
    )
    return next((int(n) for n in said if isinstance(n, int | float) and 0 < n < _UNLIMITED), None)


def _stored(config: Mapping[str, Any]) -> str:
    return str(config.get("dtype") or config.get("torch_dtype") or "").removeprefix("torch.")


def _notes(repository: Repository, found: Served) -> str:
    said = ["Written by Serai; nobody has compared its answers with a reference."]
    bare = found.family == "text_encoder" and not repository.modules
    bare = bare and repository.config.get("model_type") != "model2vec"
    if bare and OutputType.DENSE in found.outputs:
        said.append("The repository does not say how token vectors become one: set pooling.")
    if repository.pickles:
        said.append("It holds pickles only: torch_checkpoint makes safetensors of their tensors.")
    if found.family == "image_to_text":
        said.append("Its task_prompt is not in the repository: see docs/vision.md.")
    if repository.card.get("extra_gated_prompt") or repository.card.get("extra_gated_fields"):
        said.append("Gated: accept the licence on the hub and set hub_token.")
    return " ".join(said)
