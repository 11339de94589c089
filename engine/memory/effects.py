"""What `Custody` wants done, beside the messages it sends. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.conversation import Denied, Granted, Left, Ready, TooLarge, Unavailable
from engine.errors import EngineError
from engine.events import ResidencyChanged


@dataclass(frozen=True, slots=True)
class Inspect:
    """Find out what this unit will take; `Inspected` comes back."""

    unit: str


@dataclass(frozen=True, slots=True)
class BeginLoad:
    """Load this unit; `Loaded` or `LoadFailed` comes back."""

    unit: str
    device: str
    weights_bytes: int
    from_host: bool = False
    """Its weights are in host memory, and stay there until `DropHost`."""


@dataclass(frozen=True, slots=True)
class BeginUnload:
    """Unload this unit; `Unloaded` comes back."""

    unit: str
    device: str
    keep: bool = False
    """Its weights go to host memory, if they can."""


@dataclass(frozen=True, slots=True)
class DropHost:
    """The weights of this unit that are in host memory are not needed any more."""

    unit: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """The device is lost: let go of this unit's model, whatever it says. Nothing comes back."""

    unit: str
    device: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What an operator asked for is done, or cannot be."""

    ask: int
    error: EngineError | None = None


Effect = (
    Inspect
    | BeginLoad
    | BeginUnload
    | DropHost
    | Abandon
    | Answer
    | Granted
    | Denied
    | TooLarge
    | Ready
    | Left
    | Unavailable
    | ResidencyChanged
)
