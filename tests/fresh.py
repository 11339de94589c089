"""Run one function in an interpreter of its own, for what a long test process would blur: its memory."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable


def in_a_fresh_process(check: Callable[[], None]) -> None:
    """`check` is a function at the top of a module of tests. Fails with its traceback."""
    command = [sys.executable, "-m", "tests.fresh", check.__module__, check.__qualname__]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr


if __name__ == "__main__":
    getattr(importlib.import_module(sys.argv[1]), sys.argv[2])()
