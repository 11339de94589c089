"""Made-up results of load tests."""

from __future__ import annotations

from loadtests.load_beside import Seen
from loadtests.many_live import TARGET, Answered, Turn
from loadtests.soak import Sample


def sample(at: float, rss: int, descriptors: int, held: int = 0) -> Sample:
    return Sample(at, rss, descriptors, threads=10, children=0, held=held, waiting=0)


def seen(quiet: float, loading: float, spinning: float) -> Seen:
    """One window of each, all latencies alike."""
    return Seen([[quiet]], [[loading]], [[spinning]], loads=1)


def turn(on_time: int, late: int = 0, failed: int = 0) -> Turn:
    answers = [Answered("m", 200, 0.1)] * on_time + [Answered("m", 200, TARGET + 1)] * late
    return Turn(1, (*answers, *[Answered("m", 503, 0.1)] * failed), loads=1, evictions=1)
