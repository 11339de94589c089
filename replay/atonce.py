"""Calls in processes of their own: a plan is many runs of the twin that know nothing of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import starmap
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Calls(Protocol):
    """A function called with each of these, and what it found, in their order. All are under way at once."""

    def __call__(self, work: Callable[..., T], calls: Sequence[tuple[Any, ...]], /) -> Iterator[T]: ...


def in_turn(work: Callable[..., T], calls: Sequence[tuple[Any, ...]], /) -> Iterator[T]:
    """Here, one after the other, each when it is asked for."""
    return starmap(work, calls)


@contextmanager
def at_once(workers: int) -> Iterator[Calls]:
    """In processes of their own, as many at a time as there are `workers`; what is found is the same."""
    if workers < 2:
        yield in_turn
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        try:
            yield lambda work, calls: pool.map(work, *zip(*calls, strict=True))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # or it would wait for runs that nobody wants any more
            raise
