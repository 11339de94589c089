"""Which rows of the forward pass that runs on this thread belong to which adapter."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Share:
    """Rows of one adapter; None: every row there is, of whatever layer."""

    adapter: str
    rows: Tensor | None


class _Now(threading.local):
    shares: tuple[Share, ...] = ()


_NOW = _Now()


def shares() -> tuple[Share, ...]:
    """What the layers of this thread's pass go by."""
    return _NOW.shares


@contextmanager
def applied(found: tuple[Share, ...]) -> Iterator[None]:
    """Inside it the thread's layers go by `found`."""
    before = _NOW.shares
    _NOW.shares = found
    try:
        yield
    finally:
        _NOW.shares = before


def everywhere(adapter: str | None) -> tuple[Share, ...]:
    """Every row is that adapter's, or none is any's."""
    return () if adapter is None else (Share(adapter, None),)


def laid(adapters: Sequence[str | None], lengths: Sequence[int], device: torch.device) -> tuple[Share, ...]:
    """Sequences end to end, each of so many rows and of its own adapter."""
    names = sorted({name for name in adapters if name is not None})
    if len(names) == 1 and None not in adapters:
        return everywhere(names[0])
    numbers = np.repeat([-1 if name is None else names.index(name) for name in adapters], lengths)
    return tuple(
        Share(name, torch.from_numpy(np.flatnonzero(numbers == number)).to(device))
        for number, name in enumerate(names)
    )
