"""A worker that does what it is told, however bad. Run by the tests of `child`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.adapters.documents.worker import Handle, serve
from engine.errors import InvalidInput


def say(value: Any) -> Any:
    """Prints in all the ways that a library has, then answers."""
    sys.stdout.write("a library's banner\n")
    sys.stdout.flush()
    os.write(1, b"from below Python\n")
    ctypes.CDLL(None).puts(b"from C")
    ctypes.CDLL(None).fflush(None)
    return value


def die(number: int) -> None:
    os.kill(os.getpid(), number)


def abort_with(words: str) -> None:
    sys.stderr.write(words)
    sys.stderr.flush()
    signal.signal(signal.SIGABRT, signal.SIG_DFL)
    os.abort()


def take(nbytes: int) -> int:
    return len(bytearray(nbytes))


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def connect(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=1)


def run(program: str) -> None:
    subprocess.run([program], check=True)


def write(path: str) -> None:
    Path(path).write_text("x")


def complain(words: str) -> None:
    raise InvalidInput(words, page=3)


def fail(words: str) -> None:
    raise RuntimeError(words)


def babble(words: str) -> None:
    """Writes to every pipe that is open, as a broken library might."""
    for descriptor in range(3, 16):
        with contextlib.suppress(OSError):
            os.write(descriptor, len(words).to_bytes(4, "big") + words.encode())


def look(name: str) -> Any:
    return {"pid": os.getpid(), "threads": os.environ.get("OMP_NUM_THREADS"), "value": os.environ.get(name)}


WAYS: Mapping[str, Callable[[Any], Any]] = {
    "say": say,
    "die": die,
    "abort": abort_with,
    "take": take,
    "sleep": time.sleep,
    "spin": spin,
    "answer": lambda nbytes: "x" * nbytes,
    "connect": connect,
    "run": run,
    "write": write,
    "complain": complain,
    "fail": fail,
    "babble": babble,
    "look": look,
}


def prepare(setup: Mapping[str, Any]) -> Handle:
    if "broken" in setup:
        raise RuntimeError(setup["broken"])
    if "marks" in setup:
        Path(setup["marks"], str(os.getpid())).touch()

    def handle(request: Mapping[str, Any]) -> Mapping[str, Any]:
        ((way, value),) = request.items()
        return {"said": WAYS[way](value)}

    return handle


if __name__ == "__main__":
    serve(prepare)
