"""The models as OpenAI's clients list them; beside our own list, in the same answer."""

from __future__ import annotations

from typing import Any

from engine.catalog import Catalog


def all_of(catalog: Catalog) -> dict[str, Any]:
    """Aliases are models of their own to those who list them."""
    names = [(spec.id, spec.id) for spec in catalog]
    names += [(alias, target) for alias, target in sorted(catalog.aliases.items())]
    return {"object": "list", "data": [one(name, target) for name, target in names]}


def one(name: str, model: str) -> dict[str, Any]:
    """`name` is the id or alias that was asked for. When a model was made nobody knows here."""
    owner = model.partition("/")[0] if "/" in model else "serai"
    return {"id": name, "object": "model", "created": 0, "owned_by": owner, "root": model}
