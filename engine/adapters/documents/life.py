"""One child process from its start to its reaping, and the frames that go over its pipes."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import engine
from engine.errors import InputTooLong

LENGTH = 4
"""Bytes of the big-endian length before each frame."""

TAIL_BYTES = 8192
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""All that a child sees of our environment: it reads strangers' files, so tokens and keys stay here."""

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


LOOK_SECONDS = 0.1
"""How often it is asked whether anybody waits still."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a child: until a moment of the monotonic clock, and while somebody wants it."""

    until: float
    wanted: Callable[[], bool] = lambda: True

    def turn(self) -> float:
        """Seconds to wait before the next look. Raises TimeoutError, Abandoned."""
        if not self.wanted():
            raise Abandoned
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return min(left, LOOK_SECONDS)


@dataclass(slots=True)
class Life:
    """A process with a thread of its own, which starts it, keeps its last words and reaps it.

    It is that thread because the kernel ends a child with the *thread* that started it (see
    `worker`), and any other thread of ours may be gone long before its process.
    """

    module: str
    process: subprocess.Popen[bytes] = field(init=False)
    tail: bytearray = field(default_factory=bytearray)
    greeting: bytes = b""
    """What is not yet sent of the first frame."""
    ready: bool = False
    """Whether the first frame was answered."""
    jobs: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _keeper: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        started: Future[subprocess.Popen[bytes]] = Future()
        name = f"keeper of {self.module}"
        self._keeper = threading.Thread(target=self._keep, args=(started,), name=name, daemon=True)
        self._keeper.start()
        self.process = started.result()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)

    @property
    def requests(self) -> int:
        assert self.process.stdin is not None
        return self.process.stdin.fileno()

    @property
    def answers(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def write(self, data: bytes, patience: Patience) -> None:
        """Raises Died, TimeoutError, Abandoned."""
        rest = memoryview(data)
        while rest:
            _wait(self.requests, select.POLLOUT, patience)
            try:
                rest = rest[os.write(self.requests, rest) :]
            except BlockingIOError:
                continue  # woken with less room than a page
            except OSError:
                raise Died from None

    def read(self, limit: int, patience: Patience) -> bytearray:
        """The next frame. Raises as `write`, and InputTooLong when it is longer than `limit`."""
        size = int.from_bytes(self._read(LENGTH, patience), "big")
        if size > limit:
            text = f"The answer would have {size} bytes; the limit is {limit} (max_answer). Send less."
            raise InputTooLong(text, length=size, max_length=limit)
        return self._read(size, patience)

    def kill(self) -> None:
        """Any thread may; a call that waits for the process notices."""
        with self._guard:
            if self.process.returncode is None:
                self.process.kill()

    def end(self) -> None:
        """Kills, reaps, and closes the pipes, which no other thread may be using."""
        self.kill()
        self._keeper.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self, size: int, patience: Patience) -> bytearray:
        data = bytearray()
        while len(data) < size:
            _wait(self.answers, select.POLLIN, patience)
            piece = os.read(self.answers, min(size - len(data), 1 << 20))
            if not piece:
                raise Died
            data += piece
        return data

    def _keep(self, started: Future[subprocess.Popen[bytes]]) -> None:
        try:
            process = _popen(self.module)
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(process)
        assert process.stderr is not None
        with process.stderr as said:
            while piece := os.read(said.fileno(), 4096):
                self.tail = (self.tail + piece)[-TAIL_BYTES:]
        with self._guard:
            process.kill()  # of no effect after its end; a process without stderr is of no use
            process.wait()


class Died(Exception):
    """The child closed its pipes."""


class Abandoned(Exception):
    """Nobody waits for the answer any more."""


def _wait(descriptor: int, event: int, patience: Patience) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    while not poll.poll(patience.turn() * 1000):
        pass


def _popen(module: str) -> subprocess.Popen[bytes]:
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= dict.fromkeys(ONE_THREAD, "1")
    environment |= {"HF_HUB_OFFLINE": "1", "MALLOC_ARENA_MAX": "2", "PYTHONUTF8": "1"}
    environment["PYTHONPATH"] = str(Path(engine.__file__).resolve().parents[1])
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=environment,
        start_new_session=True,  # Ctrl-C in a terminal is for the server, which drains first
    )
