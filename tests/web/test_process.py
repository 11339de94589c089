"""What a serving process sets for itself before a model library is loaded, and how its log lines read."""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from web.logs import as_client_mistake

ROOT = Path(__file__).parents[2]

PREPARED = """
import json, os, sys
from engine.config import Settings
from web.cli.process import prepare
prepare(Settings(online={online}, threads_per_slot=3))
names = ("OMP_NUM_THREADS", "MALLOC_ARENA_MAX", "HF_HUB_OFFLINE")
print(json.dumps([sys.getswitchinterval(), "torch" in sys.modules, *map(os.environ.get, names)]))
"""

ARENAS = """
import ctypes, threading
from web.cli.process import limit_arenas
limit_arenas(2)
def allocate():
    held = [ctypes.create_string_buffer(2000) for _ in range(500)]
    everyone.wait()
everyone = threading.Barrier(12)
threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


def ran(code: str, **environment: str) -> str:
    bare = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [sys.executable, "-c", code]
    return subprocess.check_output(command, cwd=ROOT, env={**bare, **environment}, text=True)


def test_a_process_sets_threads_arenas_and_offline_before_torch_is_there():
    assert json.loads(ran(PREPARED.format(online=False))) == [0.0005, False, "3", "2", "1"]


def test_what_the_operator_has_set_stays():
    set_by_hand = {"OMP_NUM_THREADS": "8", "MALLOC_ARENA_MAX": "9"}

    assert json.loads(ran(PREPARED.format(online=True), **set_by_hand)) == [0.0005, False, "8", "9", None]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
def test_the_limit_on_arenas_is_taken_by_a_process_that_runs_already():
    unlimited = ran(ARENAS.replace("limit_arenas(2)", ""))

    assert ran(ARENAS).count("<heap nr=") <= 2 < unlimited.count("<heap nr=")


def test_what_is_no_http_is_one_line_and_no_error_of_ours():
    from aiohttp.http_exceptions import ContentEncodingError

    def record(error: Exception) -> logging.LogRecord:
        kind = (type(error), error, None)
        return logging.LogRecord("aiohttp.server", logging.ERROR, "x", 1, "Error handling request", (), kind)

    theirs, ours = record(ContentEncodingError("bad gzip")), record(RuntimeError("a bug"))

    assert as_client_mistake(theirs) and as_client_mistake(ours)
    assert (theirs.levelname, theirs.exc_info) == ("INFO", None)
    assert "ContentEncodingError" in theirs.getMessage() and "bad gzip" not in theirs.getMessage()
    assert ours.levelno == logging.ERROR and ours.exc_info
