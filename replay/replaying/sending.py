"""Open loop: every request goes out at its own moment, whatever became of those before it.

Moments are absolute, so that no delay adds to the next. Latency counts from the intended moment: a sender
that is late, or a server that makes it so, cannot hide it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import numpy as np
from anyio.abc import TaskGroup

from replay.payloads import Call
from replay.replaying.log import Log
from replay.replaying.target import Target
from replay.trace import NO_SESSION, Floats

LEAD = 0.25
"""Seconds before the first request."""

PATIENCE = 60.0
"""Seconds that the last answers are waited for."""

EVERY = 1.0
"""Seconds between looks at the devices."""

Make = Callable[[int], Call]
Told = Callable[[Log], None]
Lost = Callable[[Log, float], bool]
"""Whether what is in the log at this moment says all that there is to say."""


async def replay(
    log: Log,
    make: Make,
    target: Target,
    *,
    think: Floats | None = None,
    stop: anyio.Event | None = None,
    told: Told = lambda log: None,
    lost: Lost = lambda log, now: False,
) -> None:
    """Send all of the log's trace. With `think` a session's next request waits for the one before and then
    so long; `stop` ends it early, and so does `lost` when it says so, and what was measured stays in the
    log."""
    sender = _Sender(log, make, target, think)
    with _measured(log):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, log, target, told, lost, tasks)
            if stop is not None:
                tasks.start_soon(_stop, stop, log, tasks)
            await sender.run()
            tasks.cancel_scope.cancel()
    log.looks.append((anyio.current_time() - log.begin, await target.look()))


async def _stop(stop: anyio.Event, log: Log, tasks: TaskGroup) -> None:
    await stop.wait()
    log.aborted = True
    tasks.cancel_scope.cancel()


async def _watch(log: Log, target: Target, told: Told, lost: Lost, tasks: TaskGroup) -> None:
    while not lost(log, anyio.current_time()):
        log.looks.append((anyio.current_time() - log.begin, await target.look()))
        told(log)
        await anyio.sleep(EVERY)
    log.lost = True
    tasks.cancel_scope.cancel()


@contextmanager
def _measured(log: Log) -> Iterator[None]:
    log.begin = anyio.current_time() + LEAD
    wall, used = time.monotonic(), time.process_time()
    try:
        yield
    finally:
        log.ended = anyio.current_time()
        log.cpu_share = (time.process_time() - used) / max(time.monotonic() - wall, 1e-9)


class _Sender:
    def __init__(self, log: Log, make: Make, target: Target, think: Floats | None) -> None:
        self._log = log
        self._make = make
        self._target = target
        self._think = think

    async def run(self) -> None:
        """Returns when all is answered, or nobody waits any more."""
        log = self._log
        with anyio.CancelScope() as patience:
            async with anyio.create_task_group() as tasks:
                for row in self._openers():
                    at = log.begin + float(log.trace.arrived[row])
                    call = self._make(row)  # before its moment: making it takes time, too
                    await anyio.sleep_until(at)
                    tasks.start_soon(self._session if self._think is not None else self._one, row, at, call)
                patience.deadline = anyio.current_time() + PATIENCE

    def _openers(self) -> list[int]:
        """Rows that go out by the clock: all, or of each session only the first."""
        if self._think is None:
            return list(range(len(self._log.trace)))
        sessions = self._log.trace.session
        _, first = np.unique(sessions, return_index=True)
        alone = np.flatnonzero(sessions == NO_SESSION)
        return sorted({*first.tolist(), *alone.tolist()})

    async def _session(self, row: int, at: float, call: Call) -> None:
        await self._one(row, at, call)
        assert self._think is not None
        session = int(self._log.trace.session[row])
        if session == NO_SESSION:
            return
        for following in np.flatnonzero(self._log.trace.session == session).tolist()[1:]:
            call = self._make(following)
            at = anyio.current_time() + float(self._think[following])
            await anyio.sleep_until(at)
            await self._one(following, at, call)

    async def _one(self, row: int, at: float, call: Call) -> None:
        log = self._log
        log.intended[row] = at
        log.sent[row] = anyio.current_time()
        outcome = await self._target.send(call)
        log.done[row] = anyio.current_time()
        log.outcomes[row] = outcome
