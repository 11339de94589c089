"""Runs one conversion in a child process and says how it goes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import engine
from engine.sources.files import NotHere, WheelFiles

Progress = Callable[[str, int, int], None]
"""What is being done, and how much of how much: bytes, or steps."""

ROOT = Path(engine.__file__).parents[1]


def convert(name: str, read: WheelFiles, out: Path, stderr: Path, progress: Progress) -> None:
    """Runs conversion `name` from `read` into `out`. Raises NotHere with the last line of its errors.

    The child ends when its standard input does, so it cannot outlive this process.
    """
    command = [sys.executable, "-P", "-m", "engine.sources.convert", name, str(read.folder), str(out)]
    with stderr.open("wb") as errors, _running([*command, *read.names], errors.fileno()) as child:
        assert child.stdout is not None
        for line in child.stdout:
            said = json.loads(line)
            progress(said["stage"], said["done"], said["total"])
        code = child.wait()
    if code:
        lines = stderr.read_text("utf-8", "replace").strip().splitlines() or [f"exit status {code}"]
        raise NotHere(f"the conversion {name} failed: {lines[-1][:500]}")


@contextlib.contextmanager
def _running(command: list[str], stderr: int) -> Iterator[subprocess.Popen[str]]:
    # one thread: several on few cores are slower by far, and the engine needs the others
    ours = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, **ours},
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()
