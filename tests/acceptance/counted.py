"""`python -m tests.acceptance.counted FILE serve ...`: the server as it is, which counts itself when asked.

On SIGUSR1 it writes to FILE how many tasks its event loop has and how many replies and open requests are
alive. From outside a process only its descriptors, threads and memory can be seen.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

from tests.acceptance.serving import Server

KINDS = ("Reply", "Open", "Submit", "Enqueue")
"""Names of classes: what the engine holds for each request that is not over."""


def main() -> None:
    place = Path(sys.argv.pop(1))

    def count(number: int, frame: FrameType | None) -> None:
        gc.collect()
        counts = dict.fromkeys(KINDS, 0)
        for found in gc.get_objects():
            name = type(found).__name__
            if name in counts and type(found).__module__.startswith("engine."):
                counts[name] += 1
        draft = place.with_suffix(".new")
        tasks = Counter(_name(task) for task in asyncio.all_tasks())
        draft.write_text(json.dumps({"tasks": tasks, "alive": counts}))
        draft.rename(place)

    signal.signal(signal.SIGUSR1, count)
    from web.cli import main as serai

    sys.argv[0] = "serai"
    serai()


def _name(task: asyncio.Task[object]) -> str:
    """Its own where it was given one: of one out of many connections, what it runs."""
    name = task.get_name()
    return str(getattr(task.get_coro(), "__qualname__", name)) if name.startswith("Task-") else name


def counts(server: Server, place: Path) -> dict[str, dict[str, int]]:
    """What the server counts of itself now: `tasks` by what they run, and what is `alive` by class."""
    place.unlink(missing_ok=True)
    os.kill(server.process.pid, signal.SIGUSR1)
    late = time.monotonic() + 20
    while not place.exists():
        assert time.monotonic() < late, server.said()
        time.sleep(0.02)
    return dict(json.loads(place.read_text()))


if __name__ == "__main__":
    main()
