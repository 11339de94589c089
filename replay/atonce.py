"""Calls in processes of their own: a plan is many runs of the twin that know nothing of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import starmap
from multiprocessing import get_context
from typing import Any, TypeVar

Each = TypeVar("Each")


@contextmanager
def at_once(workers: int) -> Iterator[Callable[[Callable[..., Each], list[tuple[Any, ...]]], Iterable[Each]]]:
    """Calls of a function in processes of their own, as many at a time as there are `workers`."""
    if workers < 2:
        yield starmap
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield lambda work, calls: pool.map(work, *zip(*calls, strict=True))
