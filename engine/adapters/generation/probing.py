"""Tries a directory's chat template in a child process, before this process so much as compiles it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from engine.adapters.documents.child import Bounds, Child
from engine.adapters.forward.weights import BadWeights
from engine.errors import InferenceFailed, InputTooLong, InvalidInput

BOUNDS = Bounds(memory_bytes=512 << 20, resident_bytes=256 << 20, answer_bytes=1 << 20)
SECONDS = 10.0
"""By the clock, for all conversations, on a machine that may be busy; each has its `allowance.SECONDS`."""


def probe(template: str, variables: Mapping[str, Any]) -> None:
    """Raises BadWeights for one that cannot be read or takes more than it may."""
    _probe(msgspec.json.encode({"template": template, "variables": dict(variables)}))


@lru_cache(maxsize=64)
def _probe(request: bytes) -> None:
    """Once for each: models come and go, and a child takes a third of a second."""
    child = Child("engine.adapters.generation.template_worker", BOUNDS)
    try:
        child.call(msgspec.json.decode(request), SECONDS)
    except (InvalidInput, InputTooLong, InferenceFailed) as error:
        raise BadWeights(f"the chat template cannot be used: {error.message}") from None
    finally:
        child.close()
