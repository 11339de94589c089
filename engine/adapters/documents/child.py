"""A child process for work that may leak, crash or change its whole process: it fails alone.

One call at a time: a frame of msgpack over standard input, a frame back over standard output; never
pickle. A child that dies, or crosses one of its bounds, costs the call that it was on; the next call
has a new child. It ends with this process, whatever ends this process. The other side is `worker`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from engine.adapters.documents.life import LENGTH, Died, Life
from engine.adapters.documents.worker import NO_MEMORY, Reply
from engine.errors import (
    EngineError,
    InferenceFailed,
    InputTooLong,
    LoadFailed,
    ResourceExhausted,
    Stopped,
)

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

    def call(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """What the worker answers. Blocks, without the GIL, for at most about `seconds`.

        Raises the worker's own typed error; InputTooLong when the work needs more memory than it may
        have or answers more than it may; InferenceFailed when it takes too long or the child dies.
        """
        with self._lock:
            life = self._ready()
            frame = _pack({"seconds": seconds, "request": dict(request)})
            reply = self._exchange(life, frame, seconds)
            life.jobs += 1
            bounds = self._bounds
            if reply.spent or life.jobs >= bounds.jobs or reply.resident > bounds.resident_bytes:
                self._retire()
                with contextlib.suppress(EngineError):
                    self._begin()  # the next one prepares while nobody waits for it
        return _answer(reply)

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
            reply = self._exchange(life, life.greeting, self._bounds.start_seconds)
            if reply.failure:
                self._retire()
            _answer(reply)
            life.ready = True
        return life

    def _exchange(self, life: Life, frame: bytes, seconds: float) -> Reply:
        """One frame there, one back. A child that does not manage it is ended."""
        deadline = time.monotonic() + seconds
        try:
            life.write(frame, deadline)
            return msgspec.msgpack.decode(life.read(self._bounds.answer_bytes, deadline), type=Reply)
        except Died:
            self._retire()
            raise (Stopped(UNLOADED) if self._closed else self._death(life)) from None
        except TimeoutError:
            self._retire()
            raise InferenceFailed(
                f"The worker took longer than {seconds:g} s and was ended; send less at a time."
            ) from None
        except msgspec.MsgspecError as error:
            self._retire()
            raise InferenceFailed(f"The worker's answer cannot be read: {error}") from error
        except BaseException:
            self._retire()  # an answer may be on its way, and would be taken for the next call's
            raise

    def _retire(self) -> None:
        if self._life is not None and self._end is not None:
            self._end()
        self._life = None

    def _death(self, life: Life) -> EngineError:
        code = life.process.returncode
        tail = life.tail.decode("utf-8", "replace").strip()
        log.warning("%s %s; its last words: %s", self._module, _cause(code), tail)
        limit = self._bounds.memory_bytes >> 20
        if any(words in tail for words in ("MemoryError", *NO_MEMORY)):
            return InputTooLong(f"This input needs more than the {limit} MiB that it may use; send less.")
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
