"""A child process for work that may leak, crash or change its whole process: it fails alone.

One call at a time: a frame of msgpack over standard input, a frame back over standard output; never
pickle. A child that dies, or crosses one of its bounds, costs the call that it was on; the next call
has a new child. It ends with this process, whatever ends this process. The other side is `worker`.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from engine.adapters.documents.life import LENGTH, Abandoned, Died, Life, Patience
from engine.adapters.documents.worker import NO_MEMORY, Reply, too_much_memory
from engine.errors import (
    DeadlineExceeded,
    EngineError,
    InferenceFailed,
    InputTooLong,
    LoadFailed,
    ResourceExhausted,
    Stopped,
)

UNWANTED = "Nobody waits for this document any more."
UNLOADED = "This model was unloaded while the request ran; send it again."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one child may take before it is ended, or replaced after an answer."""

    memory_bytes: int
    """Private memory; an allocation beyond it fails inside the child."""
    resident_bytes: int
    """A child whose resident memory was ever above this is replaced after its answer."""
    answer_bytes: int = 64 << 20
    jobs: int = 200
    """Replaced after so many calls."""
    open_files: int = 64
    start_seconds: float = 120.0


class Child:
    """Starts with its first call, or with `start`. Any thread may use it."""

    def __init__(self, module: str, bounds: Bounds, setup: Mapping[str, Any] | None = None) -> None:
        self._module = module
        self._bounds = bounds
        self._setup = dict(setup or {})
        self._lock = threading.Lock()
        self._life: Life | None = None
        self._end: weakref.finalize[..., Any] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process, for whoever counts its memory; None while there is none."""
        life = self._life
        return life.process.pid if life else None

    def start(self) -> None:
        """Waits until a child is ready. Raises LoadFailed."""
        with self._lock:
            try:
                self._ready()
            except EngineError as error:
                raise LoadFailed(f"{self._module} did not start: {error.message}") from error

    def call(
        self, request: Mapping[str, Any], seconds: float, wanted: Callable[[], bool] = lambda: True
    ) -> dict[str, Any]:
        """What the worker answers. Blocks, without the GIL, for at most about `seconds` of its work.

        Raises the worker's own typed error; InputTooLong when the work needs more time or memory than it
        may have or answers more than it may; InferenceFailed when the child dies; DeadlineExceeded soon
        after it is no longer `wanted`: the child is ended in its middle, and another one begun.
        """
        with self._mine(wanted):
            life = self._ready()
            frame = _pack({"seconds": seconds, "request": dict(request)})
            try:
                reply = self._exchange(life, frame, Patience(time.monotonic() + seconds, wanted))
            except TimeoutError:
                self._replace()
                text = (
                    f"It takes longer than {seconds:g} s (max_seconds), and was ended; send less at a time."
                )
                raise InputTooLong(text, max_seconds=seconds) from None
            except Abandoned:
                self._replace()
                raise DeadlineExceeded(UNWANTED) from None
            life.jobs += 1
            bounds = self._bounds
            if reply.spent or life.jobs >= bounds.jobs or reply.resident > bounds.resident_bytes:
                self._replace()
        return _answer(reply)

    @contextlib.contextmanager
    def _mine(self, wanted: Callable[[], bool]) -> Iterator[None]:
        """One call at a time; whoever is not wanted any more does not wait for its turn."""
        waiting = Patience(math.inf, wanted)
        try:
            while not self._lock.acquire(timeout=waiting.turn()):
                pass
        except Abandoned:
            raise DeadlineExceeded(UNWANTED) from None
        try:
            yield
        finally:
            self._lock.release()

    def close(self) -> None:
        """Ends and reaps the child, also in the middle of a call, which then raises Stopped."""
        self._closed = True
        if life := self._life:
            life.kill()
        with self._lock:
            self._retire()

    def _begin(self) -> Life:
        """A new process, told what to prepare."""
        if self._closed:
            raise Stopped(UNLOADED)
        try:
            self._life = life = Life(self._module)
        except OSError as error:
            raise ResourceExhausted(f"No worker process can be started: {error}") from error
        self._end = weakref.finalize(self, life.end)
        frame = {"parent": os.getpid(), "setup": self._setup, "bounds": asdict(self._bounds)}
        life.greeting = _pack(frame)
        with contextlib.suppress(BlockingIOError, OSError):  # what is left goes with the first call
            life.greeting = life.greeting[os.write(life.requests, life.greeting) :]
        return life

    def _ready(self) -> Life:
        life = self._life or self._begin()
        if not life.ready:
            reply = self._greeted(life)
            if reply.failure:
                self._retire()
            _answer(reply)
            life.ready = True
        return life

    def _greeted(self, life: Life) -> Reply:
        """What it says to what it is to prepare."""
        seconds = self._bounds.start_seconds
        try:
            return self._exchange(life, life.greeting, Patience(time.monotonic() + seconds))
        except TimeoutError:
            raise InferenceFailed(f"The worker was not ready after {seconds:g} s, and was ended.") from None

    def _exchange(self, life: Life, frame: bytes, patience: Patience) -> Reply:
        """One frame there, one back. A child that does not manage it is ended. Raises as `call`, and
        TimeoutError, Abandoned."""
        try:
            life.write(frame, patience)
            return msgspec.msgpack.decode(life.read(self._bounds.answer_bytes, patience), type=Reply)
        except Died:
            self._retire()
            raise (Stopped(UNLOADED) if self._closed else self._death(life)) from None
        except msgspec.MsgspecError as error:
            self._retire()
            raise InferenceFailed(f"The worker's answer cannot be read: {error}") from error
        except BaseException:
            self._retire()  # an answer may be on its way, and would be taken for the next call's
            raise

    def _replace(self) -> None:
        """A new child, which prepares while nobody waits for it."""
        self._retire()
        with contextlib.suppress(EngineError):
            self._begin()

    def _retire(self) -> None:
        if self._life is not None and self._end is not None:
            self._end()
        self._life = None

    def _death(self, life: Life) -> EngineError:
        code = life.process.returncode
        tail = life.tail.decode("utf-8", "replace").strip()
        # Only where it was: whatever else it said may be of the document.
        frames = [line.strip() for line in tail.splitlines() if line.lstrip().startswith('File "')]
        log.warning("%s %s; it was at: %s", self._module, _cause(code), "; ".join(frames) or "unknown")
        # PDFium aborts without a word where it gets no memory; whatever else aborts says why.
        without_a_word = code == -signal.SIGABRT and not tail
        if without_a_word or any(words in tail for words in ("MemoryError", *NO_MEMORY)):
            return too_much_memory(self._bounds.memory_bytes)
        last = tail.rpartition("\n")[2][-300:]
        said = f" It said: {last}" if last else ""
        return InferenceFailed(f"The worker {_cause(code)} while it ran this input.{said}")


def _pack(frame: Mapping[str, Any]) -> bytes:
    body = msgspec.msgpack.encode(frame)
    return len(body).to_bytes(LENGTH, "big") + body


def _answer(reply: Reply) -> dict[str, Any]:
    if reply.failure:
        raise reply.failure.error()
    return reply.answer


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"
