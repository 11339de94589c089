"""A call a line, many at once, and their answers a line each, in the order of the questions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import orjson
from anyio import BrokenResourceError
from anyio.streams.memory import MemoryObjectSendStream

from web.calling.failing import CallFailed

WINDOW = 16
"""Answers that may wait for one before them, for each call that is under way."""
LONGEST_WAIT = 30.0

GONE = (RuntimeError, CancelledError, BrokenResourceError)
"""What a reader meets when whoever it reads for has left."""

Ask = Callable[[bytes], Awaitable[Mapping[str, Any]]]
"""A line's answer. Raises CallFailed."""


@dataclass(slots=True)
class Written:
    """Writes answers in the order of their lines; those that come early wait here."""

    out: BinaryIO
    told: Callable[[int], None]
    """Hears how many lines are done."""
    failed: int = 0
    done: int = 0
    _early: dict[int, bytes] = field(default_factory=dict)

    def take(self, line: int, answer: bytes) -> int:
        """How many answers could be written because of this one."""
        self._early[line] = answer
        before = self.done
        while (ready := self._early.pop(self.done, None)) is not None:
            self.out.write(ready + b"\n")
            self.done += 1
        if self.done > before:
            self.out.flush()
            self.told(self.done)
        return self.done - before


async def run(lines: AsyncGenerator[bytes, None], ask: Ask, written: Written, concurrency: int) -> None:
    """Until `lines` end. A line that fails has its error as its answer, and others go on.

    Raises CallFailed when there is no server to ask: then nothing of what follows would fare better.
    """
    going, window = anyio.Semaphore(concurrency), anyio.Semaphore(concurrency * WINDOW)
    number = 0
    try:
        async with aclosing(lines), anyio.create_task_group() as group:
            async for line in lines:
                await window.acquire()
                await going.acquire()
                group.start_soon(_one, number, line, ask, written, going, window)
                number += 1
    except* CallFailed as failures:
        raise _first(failures) from None


def _first(failures: BaseExceptionGroup[CallFailed]) -> CallFailed:
    """Many calls fail at once, all for one reason."""
    failed = failures.exceptions[0]
    return failed if isinstance(failed, CallFailed) else _first(failed)


async def _one(
    number: int, line: bytes, ask: Ask, written: Written, going: anyio.Semaphore, window: anyio.Semaphore
) -> None:
    try:
        answer = await _patiently(line, ask)
    except CallFailed as error:
        if not error.code:
            raise
        written.failed += 1
        answer = {"error": {"code": error.code, "message": error.message}}
    finally:
        going.release()
    for _ in range(written.take(number, orjson.dumps(answer))):
        window.release()


async def _patiently(line: bytes, ask: Ask) -> Mapping[str, Any]:
    """A server without room is asked again, as long as it takes: the work has to be done some time."""
    while True:
        try:
            return await ask(line)
        except CallFailed as error:
            if error.wait is None:
                raise
            await anyio.sleep(min(max(error.wait, 0.05), LONGEST_WAIT))


def resumed(path: Path) -> tuple[BinaryIO, int]:
    """The output, open at the end of its last whole line, and how many of those it has.

    What was written of a line when it broke off is cut away.
    """
    out = path.open("a+b")
    out.seek(0)
    lines = end = 0
    for line in out:
        if not line.endswith(b"\n"):
            break
        lines, end = lines + 1, end + len(line)
    out.truncate(end)
    out.seek(end)
    return out, lines


def count(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for line in file if line.strip())


async def from_file(path: Path, skip: int) -> AsyncGenerator[bytes, None]:
    """Lines that hold anything, without the first `skip` of them."""
    with path.open("rb") as file:
        full = (line for line in file if line.strip())
        for line in itertools.islice(full, skip, None):
            yield line


async def from_stdin(skip: int) -> AsyncGenerator[bytes, None]:
    """The same of standard input, which may pause for as long as it likes.

    It is read by a thread that nobody waits for: one that is in the middle of a read cannot be stopped.
    """
    send, receive = anyio.create_memory_object_stream[bytes](0)
    loop = asyncio.get_running_loop()

    def read() -> None:
        with os.fdopen(os.dup(0), "rb") as file, contextlib.suppress(*GONE):
            for line in file:
                _sent(send, line, loop).result()
            loop.call_soon_threadsafe(send.close)

    threading.Thread(target=read, name="standard input", daemon=True).start()
    async with receive:
        async for line in receive:
            if not line.strip():
                continue
            if skip:
                skip -= 1
                continue
            yield line


def _sent(send: MemoryObjectSendStream[bytes], line: bytes, loop: asyncio.AbstractEventLoop) -> Future[None]:
    """Done when the line was taken. The coroutine is made on the loop: one that the loop does not come to,
    since it ends, would be complained of."""
    taken: Future[None] = Future()

    def ended(task: asyncio.Task[None]) -> None:
        if task.cancelled():
            taken.cancel()
        elif error := task.exception():
            taken.set_exception(error)
        else:
            taken.set_result(None)

    loop.call_soon_threadsafe(lambda: loop.create_task(send.send(line)).add_done_callback(ended))
    return taken
