"""What a serving process must be before a model library is loaded: threads and arenas."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.config import Settings

_M_ARENA_MAX = -8
"""glibc's number for the parameter, from malloc.h."""

SWITCH_INTERVAL = 0.0005
"""Seconds after which a thread gives the interpreter up. With two busy Python threads on two cores the
event loop was late by 1.9 ms (median) instead of 16 ms at the default of 5 ms; both threads did no less.
"""


def prepare(settings: Settings) -> None:
    """Call once, before torch is imported. Children inherit the environment that it sets.

    OpenMP: a slot is one thread; two OpenMP threads on a busy machine are far slower than one.
    Arenas: weights that are freed go back to the system only when few arenas hold on to them. glibc
    reads the variable at its own start, which has passed, so this process is told directly.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(settings.threads_per_slot))
    # Segments that grow in place fragment less; a card's allocator reads this when it starts.
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    if not settings.online:
        os.environ["HF_HUB_OFFLINE"] = "1"
    if "MALLOC_ARENA_MAX" not in os.environ:
        os.environ["MALLOC_ARENA_MAX"] = "2"
        limit_arenas(2)
    sys.setswitchinterval(SWITCH_INTERVAL)


def limit_arenas(count: int) -> bool:
    """Whether the C library took the limit; one that is not glibc has no such thing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(_M_ARENA_MAX, count))
