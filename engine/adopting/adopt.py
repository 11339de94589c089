"""A repository of the hub, as an entry of the catalogue. Blocks while papers are read or fetched."""

from __future__ import annotations

from engine.adopting import entry
from engine.adopting import repository as repositories
from engine.entry import ModelSpec


def repository(name: str, online: bool, endpoint: str | None, token: str | None) -> ModelSpec:
    """Raises WeightsUnavailable when the hub and its cache have none, InvalidInput when nothing serves it."""
    folder = repositories.snapshot(name, online, endpoint, token)
    names = repositories.held(name, folder, online, endpoint, token)
    return entry.entry(repositories.read(name, folder, names))
