"""Vectors of labels that are read apart from texts: each is made once, and kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from engine.adapters.forward.packed import Ids

KEPT = 4096


class LabelVectors:
    """Threads may share it. `read` makes a vector of each label's tokens, in host memory."""

    def __init__(self, read: Callable[[Sequence[Ids]], Sequence[Tensor]]) -> None:
        self._read = read
        self._known: dict[bytes, Tensor] = {}
        """By the tokens of the label; those asked for last are at the end."""
        self._lock = threading.Lock()

    def of(self, labels: Sequence[Ids]) -> list[Tensor]:
        keys = [ids.tobytes() for ids in labels]
        found = self._found(dict(zip(keys, labels, strict=True)))
        return [found[key] for key in keys]

    def _found(self, asked: Mapping[bytes, Ids]) -> dict[bytes, Tensor]:
        with self._lock:
            found = {key: self._known[key] for key in asked if key in self._known}
        if new := [key for key in asked if key not in found]:
            found |= dict(zip(new, self._read([asked[key] for key in new]), strict=True))
        with self._lock:
            for key in asked:
                self._known.pop(key, None)
                self._known[key] = found[key]
            for key in list(self._known)[: max(0, len(self._known) - KEPT)]:
                del self._known[key]
        return found
