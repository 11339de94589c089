"""What can be said of a request without running it: its cost, its tokens, how long it would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.errors import EngineError
from engine.requests import Usage


@dataclass(frozen=True, slots=True)
class Tokens:
    """One text as a model's tokenizer cuts it. All three sequences have one entry a token."""

    ids: Sequence[int]
    special: Sequence[int]
    """1 where the token stands for no part of the text."""
    spans: Sequence[tuple[int, int]]
    """Code points of the text, end exclusive."""
    names: Mapping[int, str]
    """How the special ones are written."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """How a request of a known cost would fare if it came now. Times are in seconds."""

    cold: bool
    wait: float
    """Until its first batch starts, when its model is loaded."""
    load: float | None
    """0 when it is warm; None when the model was not loaded yet, so that nobody knows."""
    run: float | None
    """From its first batch to its last; None while too little of this model has run."""
    refusal: EngineError | None = None
    """Why it may not join the queue."""


@dataclass(frozen=True, slots=True)
class Costed:
    """What a request takes. `costs` has one entry an item, 0 for one that could not be prepared."""

    model: str
    cost_unit: str
    costs: tuple[int, ...]
    usage: Usage
    degrade: str | None = None
    """The model that answers when this one refuses for want of room."""


@dataclass(frozen=True, slots=True)
class Estimated:
    costed: Costed
    outlook: Outlook
    absent: tuple[str, ...] = ()
    """Units that it needs and that are not there: its own first, then its adapters."""
