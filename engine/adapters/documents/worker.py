"""The child's side of `child`: reads a request, answers it, and keeps to its bounds.

A worker module calls `serve(prepare)` when it is run as a program. Nothing that a library prints can
reach the protocol: standard output is standard error from the first line on.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from engine.errors import EngineError, Failure, InferenceFailed, InputTooLong


class Reply(msgspec.Struct):
    """A frame back: what was asked for, or what went wrong."""

    answer: dict[str, Any]
    failure: Failure | None
    spent: bool
    """Whether the child can do no more."""
    resident: int
    """The most bytes of memory that it ever had."""


Handle = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Prepare = Callable[[Mapping[str, Any]], Handle]
"""Imports and loads what the work needs, once, and returns what does the work."""

PR_SET_PDEATHSIG = 1
REFUSED = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn")
"""Beginnings of audit events that no worker has a reason for: documents name addresses and programs."""

NO_MEMORY = ("bad_alloc", "bad allocation", "Insufficient memory", "Failed to allocate memory")
"""How C++ and OpenCV and ONNX Runtime say MemoryError, in errors of other classes or as last words."""


def serve(prepare: Prepare) -> None:
    """Runs until the parent closes the pipe. The first request is the set-up."""
    requests, answers = _pipes()
    first = _read(requests)
    if first is None:
        return
    _end_with(first["parent"])
    _keep_to(first["bounds"])
    logging.disable(logging.WARNING)  # libraries narrate on standard error, which is for last words
    made: list[Handle] = []

    def ready(setup: Mapping[str, Any]) -> dict[str, Any]:
        made.append(prepare(setup))
        return {}

    reply = _attempt(ready, first["setup"], first["bounds"])
    _write(answers, reply)
    sys.addaudithook(_refuse)
    while made and not reply.spent and (request := _read(requests)) is not None:
        _allow_seconds(request["seconds"])
        reply = _attempt(made[0], request["request"], first["bounds"])
        _write(answers, reply)
        _give_back()


def _attempt(handle: Handle, request: Mapping[str, Any], bounds: Mapping[str, Any]) -> Reply:
    """The reply frame. Whatever the work raises is told as a typed error; a worker ends only by dying."""
    failure: EngineError | None = None
    answer: Mapping[str, Any] = {}
    spent = False
    try:
        answer = handle(request)
    except EngineError as error:
        failure = error
    except Exception as error:
        failure = InferenceFailed(f"{type(error).__name__}: {str(error)[:300]}")
        if isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY):
            failure = too_much_memory(bounds["memory_bytes"])
            spent = True  # who knows which library was left half-way
    return Reply(dict(answer), failure.failure() if failure else None, spent, _peak_resident_bytes())


def too_much_memory(limit: int) -> InputTooLong:
    text = f"This input needs more than the {limit >> 20} MiB that it may use (max_memory); send less."
    return InputTooLong(text, max_memory=limit)


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _end_with(parent: int) -> None:
    """The kernel ends this process with the thread that started it; the pipe's end does the rest."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before the kernel was asked
        os._exit(1)


def _keep_to(bounds: Mapping[str, Any]) -> None:
    _limit(resource.RLIMIT_DATA, bounds["memory_bytes"])
    _limit(resource.RLIMIT_NOFILE, bounds["open_files"])
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)  # nothing here has a file to write


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def _allow_seconds(seconds: float) -> None:
    """A bound on processor time too, which holds when nobody is left to watch the clock."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(time.process_time() + seconds) + 1
    soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _give_back() -> None:
    """Freed memory goes back to the system: the server counts what its children hold."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if event.startswith(REFUSED):
        raise PermissionError(f"a worker may not do this: {event}")


def _peak_resident_bytes() -> int:
    """The most that this process has held. On Linux ru_maxrss starts from the parent's, through exec too."""
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _read(requests: BinaryIO) -> dict[str, Any] | None:
    """The next frame, or None when the parent is gone."""
    size = int.from_bytes(requests.read(4), "big")
    return cast(dict[str, Any], msgspec.msgpack.decode(requests.read(size))) if size else None


def _write(answers: BinaryIO, reply: Reply) -> None:
    body = msgspec.msgpack.encode(reply)
    with contextlib.suppress(BrokenPipeError):
        answers.write(len(body).to_bytes(4, "big") + body)
        answers.flush()
