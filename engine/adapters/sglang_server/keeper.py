"""Runs a server as its child, and ends it and all that it started when its own parent is gone.

A program of the standard library alone: `python -I keeper.py GRACE COMMAND...`. Its standard input is a
pipe that the parent holds open: closed, by the parent or by the parent's death, it asks the server to
end and gives it GRACE seconds; a byte in it ends the server at once. It ends as the server did: with
the same code, or by the same signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1
NOT_FOUND = 127


def main() -> None:
    grace, command = float(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    libc = ctypes.CDLL(None)
    try:
        # A group of its own: what it starts is in it. There is one thread here, so that code may run
        # between fork and exec: the kernel ends the server with this process, however that ends.
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=2,
            process_group=0,
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
        )
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(NOT_FOUND)
    ended = os.pidfd_open(server.pid)
    ready, _, _ = select.select([0, ended], [], [])
    if ended not in ready and not os.read(0, 1):
        _signal(server.pid, signal.SIGTERM)
        select.select([ended], [], [], grace)
    _signal(server.pid, signal.SIGKILL)
    _end_as(server.wait())


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _end_as(code: int) -> None:
    if code >= 0:
        sys.exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


if __name__ == "__main__":
    main()
