"""The numbers that the memory manager works by, from the settings. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

FLOOR_SHARE = 8
"""Beside the weights there is always room for a batch of at least this fraction (1/n) of the usual cost."""

KV_FLOOR_TOKENS = 512
"""And, for a unit that generates, for a sequence of so many tokens."""

LINGER_SHARE = 1 / 4
"""A unit stays at least this share of its load time after its last use: evicting it sooner costs more
than waiting for the next request, as renting skis for the first days costs less than buying them."""

GROUPING = 4
"""While both have work, a unit keeps its place for so many times what the change of places takes."""

GUARD_SECONDS = 60.0
"""What was used for a class in so many seconds is left to it by claims of less urgent classes."""

LOOK_SECONDS = 0.01
"""Claims are looked at no more often than this for what happens with every batch: a look costs a fifth of a
millisecond a claim, and a load takes far longer."""

CLAIM_SECONDS = 60.0
"""No claim stands behind others for longer than if its work were due so long after it was made."""

AHEAD_SECONDS = 10.0
"""An expectation that could not be met for so long is forgotten."""

BUSY_SECONDS = 60.0
"""What batches held at once in so many seconds is left to them by what is loaded ahead."""

THRASH_TIMES, THRASH_SECONDS = 3, 60.0
"""A unit that came back so often in so many seconds, each time after an eviction, is thrashing."""

CROWDED_RETRY = 5.0
"""Seconds after which one who is refused since others hold the device may try again."""


class EvictionPolicy(StrEnum):
    VALUE = "value"  # (recent demand x seconds to reload) per byte
    LRU = "lru"
    LFU = "lfu"


@dataclass(frozen=True, slots=True)
class MemoryRules:
    policy: EvictionPolicy = EvictionPolicy.VALUE
    load_cooldown: float = 10.0
    """Seconds after a failed load before it is tried again."""
    min_residency: float = 2.0
    max_cold_wait: float = 5.0
    """A unit with work waits no longer than this for others that have work too to make room."""
    loads_at_once: int = 2
    """On one device: more would only share its bandwidth."""
    idle_unload: float | None = None
    """Seconds without use after which a unit leaves, where its own facts do not say."""
