"""What is told of recordings: plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PayloadWish:
    """The content of requests is wanted too: of which models, for how long, and how much at most."""

    models: tuple[str, ...]
    seconds: float
    max_bytes: int


@dataclass(frozen=True, slots=True)
class RunningView:
    """The recording that runs now."""

    name: str
    started_at: float
    """Seconds since the epoch."""
    payload_models: tuple[str, ...] = ()
    """Models whose requests' content is being written to disk now."""
    payload_bytes: int = 0
    payload_until: float = 0.0


@dataclass(frozen=True, slots=True)
class RecorderView:
    """What the recorder does. `dropped`: rows that it could not keep since the server started."""

    enabled: bool = False
    dropped: int = 0
    running: RunningView | None = None
    trouble: str = ""
    """Why the last write failed; empty when it did not."""


@dataclass(frozen=True, slots=True)
class RecordingInfo:
    """One recording, with what there is of it now."""

    name: str
    started_at: float
    ended_at: float | None
    """None while it runs."""
    closed: str
    """running, stopped, interrupted or imported."""
    who: str
    seed: int
    requests: int
    batches: int
    loads: int
    models: int
    lost: int
    """Rows that the disk could not take meanwhile."""
    payloads: int
    """Requests whose content was kept, in a file of its own."""
