"""What travels beside the messages: prepared inputs on their way in, results on their way out.

The batcher is the only one that adds and removes; runners read and leave their results. Within one
process a reference is a key of these two tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.adapters.family import Prepared
from engine.requests import Output


@dataclass(slots=True)
class Payloads:
    prepared: dict[str, Prepared] = field(default_factory=dict)
    outputs: dict[str, Output] = field(default_factory=dict)
    wanted: Callable[[str], bool] = lambda job: True
    """Whether anybody waits for this job still, as the table of replies knows. Any thread may ask."""

    def drop(self, job: str) -> None:
        """The job is over, however it ended."""
        self.prepared.pop(job, None)
        self.outputs.pop(job, None)
