"""A call a line, many at once, and their answers a line each, in the order of the questions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import orjson

from web.calling.failing import CallFailed

WINDOW = 16
"""Answers that may wait for one before them, for each call that is under way."""
LONGEST_WAIT = 30.0

AHEAD = 16
"""Lines of standard input that are read before anybody takes them."""

Ask = Callable[[bytes], Awaitable[Mapping[str, Any]]]
"""A line's answer. Raises CallFailed."""

FAILED = b'{"error":'
"""How the answer of a call that failed begins."""


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


def resumed(path: Path) -> tuple[BinaryIO, int, int]:
    """The output, open at the end of its last whole line, how many of those it has, and how many of those
    say that their call failed.

    What was written of a line when it broke off is cut away.
    """
    out = path.open("a+b")
    out.seek(0)
    lines = end = failed = 0
    for line in out:
        if not line.endswith(b"\n"):
            break
        lines, end, failed = lines + 1, end + len(line), failed + line.startswith(FAILED)
    out.truncate(end)
    out.seek(end)
    return out, lines, failed


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
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    room, left = threading.Semaphore(AHEAD), threading.Event()

    def read() -> None:
        with os.fdopen(os.dup(0), "rb") as file, contextlib.suppress(RuntimeError):  # the loop is closed
            while room.acquire() and not left.is_set():
                loop.call_soon_threadsafe(lines.put_nowait, line := file.readline())
                if not line:
                    return

    threading.Thread(target=read, name="standard input", daemon=True).start()
    try:
        while line := await lines.get():
            room.release()
            if not line.strip():
                continue
            if skip:
                skip -= 1
                continue
            yield line
    finally:
        left.set()
        room.release()
