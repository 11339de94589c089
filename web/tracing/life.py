"""The life of a request as pieces of time, one after the other. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.events import RequestDone


@dataclass(frozen=True, slots=True)
class Moments:
    """What the edge knows of a request that is over. Times are on the engine's clock."""

    arrived: float
    ended: float
    status: int
    method: str
    route: str


@dataclass(frozen=True, slots=True)
class Piece:
    name: str
    began: float
    ended: float


def pieces(moments: Moments, done: RequestDone | None) -> list[Piece]:
    """Parse, prepare, load, queue, run, encode; those that took time. A load comes before the queue moves.

    Stages that a batch ran in are measured by who did them, so what the loop needed between two of them
    belongs to none.
    """
    if done is None:
        return []
    found, at = [Piece("parse", moments.arrived, done.arrived)], done.arrived
    for name, seconds in (
        ("prepare", done.prepare_seconds),
        ("load", done.load_seconds),
        ("queue", done.queue_seconds),
        ("run", done.run_seconds),
    ):
        found.append(Piece(name, at, at + seconds))
        at += seconds
    answered = done.arrived + done.total_seconds
    found.append(Piece("encode", min(answered, moments.ended), moments.ended))
    return [piece for piece in found if piece.ended > piece.began]
