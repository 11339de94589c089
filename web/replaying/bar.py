"""How far a replay is, on a terminal: time left, what was sent and answered, how late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from replay.replaying.log import Log


@contextmanager
def shown(title: str, seconds: float) -> Iterator[Callable[[Log], None]]:
    """What to call with the log now and then; drawn on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        line = bars.add_task(title, total=max(seconds, 0.001), said="")

        def told(log: Log) -> None:
            at = log.looks[-1][0] if log.looks else 0.0
            bars.update(line, completed=min(max(at, 0.0), seconds), said=_said(log))

        yield told


def _said(log: Log) -> str:
    lag = log.lag
    late = f", p99 lag {np.quantile(lag, 0.99) * 1000:.1f} ms" if len(lag) else ""
    return f"{len(lag)} of {len(log.trace)} sent, {log.answered} answered{late}"
