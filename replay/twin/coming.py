"""How requests came into the queue in a recording: what preparing took, and which came together. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay.recording import Recording
from replay.trace import Floats, Ints

MOST = 2000
"""Readings of preparation that are kept of a unit: enough for a tail."""

ENOUGH = 20
"""Readings that show how preparation goes beside so many batches. With fewer the nearest others count too."""

AT_ONCE = 0.001
"""Seconds within which requests are in the queue together: a slot that waits for company waits as long."""


def together(recording: Recording) -> float:
    """Of requests that came while the one before was prepared, the share that went into the queue with it;
    as if one of two had been seen before any."""
    came = recording.requests["at"]
    went = came + recording.requests["prepare_seconds"]
    during = came[1:] < went[:-1]
    return float((np.abs(np.diff(went)[during]) < AT_ONCE).sum() + 1) / float(during.sum() + 2)


def queued(recording: Recording) -> dict[int, float]:
    """When the first job of each batch came into the queue, by the batch's number."""
    requests, first = recording.requests, dict[int, float]()
    came = (requests["at"] + requests["prepare_seconds"]).tolist()
    for told, at in zip(requests["batches"].tolist(), came, strict=True):
        for each in filter(None, told.split(",")):
            number = int(each.partition(":")[0])
            first[number] = min(at, first.get(number, at))
    return first


@dataclass(frozen=True, slots=True)
class Preparing:
    """What preparation took, and how many batches ran when each request came: it shares the processor and the
    interpreter with them."""

    seconds: Floats
    running: Ints

    @classmethod
    def of(cls, recording: Recording) -> Preparing:
        came, began = recording.requests["at"], recording.batches["at"]
        over = np.sort(began + recording.batches["seconds"])
        running = np.searchsorted(np.sort(began), came) - np.searchsorted(over, came)
        return cls(recording.requests["prepare_seconds"], np.maximum(running, 0).astype(np.int64))

    def readings(self, asked: NDArray[Any]) -> tuple[tuple[float, ...], ...]:
        """Of these requests, beside none and more batches up to the most that was seen."""
        seconds, running = self.seconds[asked][:MOST], self.running[asked][:MOST]
        if not len(seconds):
            return ((0.0,),)
        found = []
        for others in range(int(running.max()) + 1):
            apart = np.abs(running - others)
            enough = np.sort(apart)[min(ENOUGH, len(apart)) - 1]
            found.append(tuple(seconds[apart <= enough].tolist()))
        return tuple(found)
