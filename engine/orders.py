"""What an operator may ask of a model, and what comes of it: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.catalog import ModelSpec
    from engine.catalog_changes import CatalogChange

EVERY_MODEL = "*"
"""In place of a model's name: all of them."""

RECORDINGS = "recordings"
"""What the audit calls those."""

CATALOGUE = "catalogue"
"""What the audit calls the files."""


class Action(StrEnum):
    LOAD = "load"
    UNLOAD = "unload"
    PIN = "pin"
    UNPIN = "unpin"
    DRAIN = "drain"
    PAUSE = "pause"
    RESUME = "resume"
    RELOAD = "reload"
    ADJUST = "adjust"


@dataclass(frozen=True, slots=True)
class Order:
    """`model` may name a profile, or for pause and resume be `*`: all of them.

    With `if_version` it is refused when somebody acted on the model since that version.
    """

    action: Action
    model: str
    who: str = "operator"
    reason: str = ""
    device: str | None = None
    min_slots: int = 1
    if_version: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of adjust: limits, `weight` and `service_class` by name; None is as the entry says."""


@dataclass(frozen=True, slots=True)
class Done:
    """`version` is the model's since then; a pin's price are the units that no longer fit beside the pins."""

    version: int
    no_longer_fits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Previewed:
    """What a new entry would be and change; `before` is the entry in whose place it comes."""

    spec: ModelSpec
    before: ModelSpec | None
    change: CatalogChange
    path: str
    """Of the file that would hold it."""


@dataclass(frozen=True, slots=True)
class CatalogDone:
    """What came of new catalogue files: ids by what was done, and why entries were rolled back."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    revised: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    rolled_back: dict[str, str] = field(default_factory=dict)
