"""What an operator may ask of a model, and what comes of it: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

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


@dataclass(frozen=True, slots=True)
class Done:
    """`version` is the model's since then; a pin's price are the units that no longer fit beside the pins."""

    version: int
    no_longer_fits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CatalogDone:
    """What came of new catalogue files: ids by what was done, and why entries were rolled back."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    revised: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    rolled_back: dict[str, str] = field(default_factory=dict)
