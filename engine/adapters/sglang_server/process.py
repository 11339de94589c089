"""One server process from its start to its reaping, and its last words without anybody's text."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from engine.adapters.documents.life import PASSED_ON

GRACE = 5.0
"""Seconds between asking a server to end and ending it."""
LINES, LINE = 40, 400
"""What is kept of its log: lines, and characters of each."""
CARDS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES")
_PLACE = re.compile(r'\s*File "')
_RAISED = re.compile(r"[\w.]*(Error|Exception|Exit|Interrupt)\b")

KEEPER = Path(__file__).with_name("keeper.py")


class Process:
    """Runs under a keeper (see `keeper`), so that nothing of it outlives this process."""

    def __init__(self, command: Sequence[str], extra: Mapping[str, str], secret: str) -> None:
        """`extra` is added to its environment; `secret` is shown nowhere. Raises OSError."""
        self._secret = secret
        self._lines: deque[str] = deque(maxlen=LINES)
        self._discreet = False
        self._guard = threading.Lock()
        environment = {name: os.environ[name] for name in (*PASSED_ON, *CARDS) if name in os.environ}
        environment |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUTF8": "1", **extra}
        environment.pop("VIRTUAL_ENV", None)  # it has another
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", str(KEEPER), str(GRACE), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C in a terminal is for our server, which drains first
        )
        self._reader = threading.Thread(target=self._listen, name="log of a server", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        with self._guard:
            return self._keeper.poll() is None

    @property
    def pids(self) -> frozenset[int]:
        """The server's process and all that it started."""
        try:
            return frozenset(child.pid for child in psutil.Process(self._keeper.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return frozenset()

    @property
    def cause(self) -> str:
        """How it ended; call it when it is not `alive`."""
        code = self._keeper.returncode
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with code {code}"

    def last_words(self) -> str:
        if not self.alive:
            self._reader.join(1.0)
        return "\n".join(self._lines)

    def be_discreet(self) -> None:
        """From now on it has people's text: of its log only where it was, and what kind of error, is kept."""
        self._discreet = True

    def end(self) -> None:
        """Asks it to end, waits, and ends it; returns when it and all that it started are gone."""
        self._say(b"")
        self._reap(2 * GRACE)

    def kill(self) -> None:
        """As `end`, without asking it."""
        self._say(b"k")
        self._reap(GRACE)

    def _say(self, word: bytes) -> None:
        """To the keeper, as the last thing; of no effect when it is gone."""
        assert self._keeper.stdin is not None
        with self._guard, contextlib.suppress(OSError, ValueError):
            self._keeper.stdin.write(word)
        with self._guard, contextlib.suppress(OSError):
            self._keeper.stdin.close()

    def _reap(self, seconds: float) -> None:
        try:
            self._keeper.wait(seconds)
        except subprocess.TimeoutExpired:
            self._keeper.kill()  # the kernel ends the server with it
            self._keeper.wait()
        self._reader.join(1.0)

    def _listen(self) -> None:
        assert self._keeper.stderr is not None
        with self._keeper.stderr as said:
            for line in said:
                if kept := self._kept(line.decode("utf-8", "replace").rstrip()):
                    self._lines.append(kept[:LINE])

    def _kept(self, line: str) -> str:
        line = line.replace(self._secret, "...")
        if not self._discreet or _PLACE.match(line):
            return line
        raised = _RAISED.match(line)
        return raised[0] if raised else ""
