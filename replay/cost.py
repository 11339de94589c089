"""What serving costs, by a price that is an input: now, at the knee, and with a server for each model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from replay.atonce import Calls, in_turn
from replay.most import fails
from replay.trace import Floats
from replay.twin.results import Results
from replay.twin.server import Server
from replay.twin.traffic import Traffic
from replay.whatif import Change

MOST_CARDS = 8


@dataclass(frozen=True, slots=True)
class Cost:
    """Prices are in whatever unit the price of a card's hour is in."""

    price: float
    """Of one card for an hour."""
    cards: int
    per_million: float
    """Requests that were answered, as things are."""
    per_million_at_knee: float | None
    cards_apart: int
    """With a server for each model, each with as many as hold its targets."""
    per_million_apart: float
    not_apart: tuple[str, ...]
    """Models whose targets no number of cards of their own was seen to hold."""
    idle_hours: float
    """Of a day, in which no card runs anything."""


def cost(
    server: Server,
    traffic: Traffic,
    results: Results,
    knee: float | None,
    price: float,
    seed: int,
    calls: Calls = in_turn,
) -> Cost:
    """`results` are those of `traffic`, with the batches kept. Degraded and refused are not served."""
    served = float(results.answers.ended("ok").sum()) / max(traffic.trace.span, 1e-9)
    apart, never, units = 0, [], traffic.units()
    alone = calls(_cards_for, [(server, traffic.of_unit(unit), seed) for unit in units])
    for unit, needed in zip(units, alone, strict=True):
        if needed is None:
            never.append(unit)
        apart += needed or MOST_CARDS
    cards = len(server.cards)
    return Cost(
        price=price,
        cards=cards,
        per_million=_per_million(price * cards, served),
        per_million_at_knee=None if knee is None else _per_million(price * cards, knee),
        cards_apart=apart,
        per_million_apart=_per_million(price * apart, served),
        not_apart=tuple(never),
        idle_hours=24 * idle_share(results, traffic.trace.span),
    )


def _per_million(an_hour: float, served: float) -> float:
    return an_hour * 1e6 / (3600 * served) if served else float("inf")


def _cards_for(server: Server, own: Traffic, seed: int) -> int | None:
    for count in range(1, MOST_CARDS + 1):
        if fails(Change(devices=count).server(server), own, seed) is None:
            return count
    return None


def idle_share(results: Results, span: float) -> float:
    """Of the time, in which no batch ran on any device."""
    began = np.array([ran.began for ran in results.ran])
    if not len(began):
        return 1.0
    ended = began + np.array([ran.seconds for ran in results.ran])
    return 1.0 - _covered(began, ended) / max(span, float(ended.max()))


def _covered(began: Floats, ended: Floats) -> float:
    """Seconds in the union of these intervals, which are in order of their beginning."""
    reached = np.maximum.accumulate(ended)
    before = np.concatenate([[-np.inf], reached[:-1]])
    return float(np.maximum(0.0, reached - np.maximum(began, before)).sum())
