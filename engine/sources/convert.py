"""The child process of one conversion: `python -m engine.sources.convert NAME FOLDER OUT FILE...`.

A conversion takes up to a minute, gigabytes, and the interpreter's lock: it must not share a process
with the engine. Says on standard output, as JSON lines, how far it is; what went wrong is the last line
of standard error. Ends as soon as its standard input does, for then its parent is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import TextIO

from engine.sources import conversions
from engine.sources.files import WheelFiles


def main(name: str, folder: str, out: str, *names: str) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    said, sys.stdout = sys.stdout, sys.stderr  # libraries may print; only our lines go out
    convert = conversions.function(name)
    _say(said, done=0)
    convert(WheelFiles(Path(folder), names), Path(out))
    _say(said, done=1)


def _say(to: TextIO, done: int) -> None:
    to.write(json.dumps({"stage": "convert", "done": done, "total": 1}) + "\n")
    to.flush()


def _end_with_parent() -> None:
    # not through sys.stdin: its lock would be held when the interpreter ends
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
