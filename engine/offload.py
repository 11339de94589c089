"""Who does slow work beside the event loop: threads in earnest, nobody in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from anyio import CapacityLimiter, to_thread

R = TypeVar("R")


class Offload(Protocol):
    async def __call__(self, work: Callable[[], R], /) -> R: ...


def contained(work: Callable[[], R]) -> Callable[[], R]:
    """`work`, whose panics are errors like others: a library in Rust may raise what is no `Exception`,
    and that would take down whoever waits for it."""

    def careful() -> R:
        try:
            return work()
        except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    return careful


class Threads:
    """At most `threads` pieces of work at once; the others wait their turn."""

    def __init__(self, threads: int) -> None:
        self._limiter = CapacityLimiter(threads)

    async def __call__(self, work: Callable[[], R], /) -> R:
        return await to_thread.run_sync(contained(work), limiter=self._limiter)


class Inline:
    """Does it at once on the loop. Threads do not live in virtual time, so tests and the twin use this."""

    async def __call__(self, work: Callable[[], R], /) -> R:
        return work()
