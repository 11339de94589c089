"""Who does slow work beside the event loop: threads in earnest, nobody in virtual time."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Protocol, TypeVar

from anyio import CancelScope, CapacityLimiter, WouldBlock
from anyio.lowlevel import checkpoint_if_cancelled

NICENESS = 5
"""A third of the weight of the event loop's thread, says Linux's table: it is let in soon, and beside other
processes of the machine models are not starved."""

R = TypeVar("R")


class Offload(Protocol):
    async def __call__(self, work: Callable[[], R], /) -> R: ...


def contained(work: Callable[[], R]) -> Callable[[], R]:
    """`work`, whose panics are errors like others: a library in Rust may raise what is no `Exception`,
    and that would take down whoever waits for it."""

    def careful() -> R:
        try:
            return work()
        except StopIteration as error:  # no future can carry one
            raise RuntimeError("A piece of work ended with StopIteration.") from error
        except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    return careful


class Threads:
    """At most `threads` pieces of work at once; the others wait their turn.

    The threads are its own, and where the processor is short they leave it to the event loop: what waits
    there takes microseconds, and everybody waits behind it.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "serai-work", initializer=_yield_to_others)
        self._free = CapacityLimiter(threads)

    async def __call__(self, work: Callable[[], R], /) -> R:
        await checkpoint_if_cancelled()
        try:
            self._free.acquire_nowait()
        except WouldBlock:
            await self._free.acquire()  # who leaves before its turn has nothing done
        try:
            with CancelScope(shield=True):  # as long as the thread works, its caller holds what it works on
                done = self._pool.submit(copy_context().run, contained(work))
                result = await asyncio.wrap_future(done)
        finally:
            self._free.release()
        return result


def _yield_to_others() -> None:
    """Linux has a niceness for each thread, and its children begin with it. One that is higher stays."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        now = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(now, NICENESS))


class Inline:
    """Does it at once on the loop. Threads do not live in virtual time, so tests and the twin use this."""

    async def __call__(self, work: Callable[[], R], /) -> R:
        return work()
