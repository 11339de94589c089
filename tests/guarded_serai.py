"""`serai` with a guard: whatever it tries to reach beyond this machine is written to the file that
`GUARD` names. Run as a program."""

from __future__ import annotations

import os
import sys

PLACE = os.environ.get("GUARD", "")
HERE = {"127.0.0.1", "::1", "localhost", "", None}


def guard(event: str, arguments: tuple) -> None:
    if event == "socket.connect":
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else ""  # a path: a socket on this machine
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else host
    if host not in HERE:
        fd = os.open(PLACE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, f"{event} {host}\n".encode())
        os.close(fd)


if __name__ == "__main__":
    del sys.path[0]  # this folder, which has a `web` of its own
    sys.addaudithook(guard)
    from web.cli import main

    main()
