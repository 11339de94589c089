"""For a program that starts a command: progress as JSON lines, and an end when that program ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

SUPERVISED = "For programs: progress as JSON lines on standard error; ends with standard input."

PATIENCE = 10.0
"""Seconds that the command has to leave in good order."""


def tell(progress: Mapping[str, Any]) -> None:
    """One line on standard error."""
    sys.stderr.write(json.dumps({"progress": progress}) + "\n")
    sys.stderr.flush()


def end_with_input() -> None:
    """From now on the end of standard input ends this process, and what it has started in its own group."""
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    while os.read(0, 4096):
        pass
    mine = os.getpgrp() == os.getpid()
    for number in (signal.SIGTERM, signal.SIGKILL):
        if mine:
            os.killpg(os.getpid(), number)
        else:
            os.kill(os.getpid(), number)
        threading.Event().wait(PATIENCE)
