"""What if the server or its traffic were otherwise: a declared difference, applied. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from engine.memory.rules import EvictionPolicy
from engine.quantities import about
from replay.peaks import peak, when
from replay.scaling import Method
from replay.trace import BadTrace
from replay.twin.server import Card, Server, Unit
from replay.twin.traffic import Traffic

T = TypeVar("T")

MOST = 250_000
"""Requests that a change may make of fewer: some ten to forty seconds of the twin, and what fails shows long
before. A recording that has more is simulated whole."""

SHORTEST = 10.0
"""Seconds of traffic that say anything."""


@dataclass(frozen=True, slots=True)
class Added:
    """A model that nobody has yet, asked for `rate` times a second, as `like` is asked for."""

    name: str
    like: str
    rate: float


@dataclass(frozen=True, slots=True)
class Change:
    """Only what is said differs from the server that was recorded."""

    vram: int | None = None
    """Bytes of each card."""
    speed: float | None = None
    """Of each card, in speeds of the one that was recorded."""
    devices: int | None = None
    """How many cards of the first one's kind."""
    pin: tuple[str, ...] = ()
    unpin: tuple[str, ...] = ()
    add: tuple[Added, ...] = ()
    traffic: float = 1.0
    method: Method = Method.DUP
    policy: EvictionPolicy | None = None
    window: float | None = None
    """Share of its class's target that a batch may wait for company."""
    headroom: float | None = None

    def server(self, server: Server) -> Server:
        """The server as it would be. Raises BadTrace for a model that it lacks."""
        units = dict(server.units)
        for added in self.add:
            units[added.name] = _like(_known(server, added.like), added.name)
        pins = [pin for pin in server.pins if pin not in self.unpin]
        for name in (*self.pin, *self.unpin):
            if name not in units:
                _known(server, name)
        cards = self._cards(server.cards)
        memory, scheduling = server.memory, server.scheduling
        if self.policy is not None:
            memory = replace(memory, policy=self.policy)
        if self.window is not None:
            scheduling = replace(scheduling, window_share=self.window)
        first = server.cards[0].name
        names = [card.name for card in cards]
        return replace(
            server,
            cards=cards,
            units=units,
            pins=tuple(dict.fromkeys([*pins, *self.pin])),
            memory=memory,
            scheduling=scheduling,
            headroom=server.headroom if self.headroom is None else self.headroom,
            curves={**_spread(server.curves, first, names), **server.curves},
            workspaces={**_spread(server.workspaces, first, names), **server.workspaces},
        )

    def _cards(self, cards: Sequence[Card]) -> tuple[Card, ...]:
        first, kind = cards[0], cards[0].kind
        mine = [card for card in cards if card.kind == kind]
        if self.devices is not None:
            more = [replace(first, name=f"{kind}:{n}") for n in range(self.devices + len(mine))]
            fresh = [card for card in more if card.name not in {m.name for m in mine}]
            mine = [*mine, *fresh][: self.devices]
        if self.vram is not None:
            mine = [replace(card, memory_bytes=self.vram) for card in mine]
        if self.speed is not None:
            mine = [replace(card, speed=card.speed * self.speed) for card in mine]
        return (*mine, *(card for card in cards if card.kind != kind))

    def part(self, traffic: Traffic) -> Traffic:
        """What is simulated, with the change and without: all, or the busiest part where the change makes so
        many requests of it that they would take minutes and gigabytes. Raises BadTrace where too little would
        be left."""
        arrived, span = traffic.trace.arrived, traffic.trace.span
        most = max(MOST, len(traffic))
        if self._requests(len(traffic), span) <= most:
            return traffic
        seconds = span
        while seconds >= SHORTEST and self._requests(seconds * peak(arrived, seconds), seconds) > most:
            seconds *= 0.9
        if seconds < SHORTEST:
            rate = self._requests(peak(arrived, SHORTEST), 1.0)
            raise BadTrace(
                f"With {self} the busiest {SHORTEST:g} s would have {rate:,.0f} requests a second, and at "
                f"most {most:,} requests are simulated. Ask for less: what fails fails long before that."
            )
        begin = when(arrived, seconds)
        found = traffic.between(begin, begin + seconds)
        note = f"only the busiest {seconds:.0f} s are simulated: all would be more than {most:,} requests"
        return replace(found, notes=(*found.notes, note))

    def _requests(self, count: float, seconds: float) -> float:
        """What would become of so many requests in so long."""
        more = count + sum(added.rate * seconds for added in self.add)
        return more if self.method is Method.WARP else more * self.traffic

    def asked(self, traffic: Traffic, seed: int) -> Traffic:
        """The traffic as it would be."""
        for added in self.add:
            traffic = traffic.with_model(added.name, added.like, added.rate, seed)
        return traffic.scaled(self.traffic, self.method, seed)

    def __str__(self) -> str:
        return " ".join(self._told()) or "as it is"

    def _told(self) -> Iterator[str]:
        if self.vram is not None:
            yield f"--vram {about(self.vram).replace(' ', '')}"
        for name in ("speed", "devices", "window", "headroom"):
            if (value := getattr(self, name)) is not None:
                yield f"--{name} {value:g}"
        for name in ("pin", "unpin"):
            if chosen := getattr(self, name):
                yield f"--{name} {','.join(chosen)}"
        for added in self.add:
            yield f"--add-model {added.name}=like:{added.like},rate={added.rate:g}"
        if self.traffic != 1.0:
            yield f"--traffic {self.traffic:g}x --method {self.method}"
        if self.policy is not None:
            yield f"--policy {self.policy}"


def _known(server: Server, name: str) -> Unit:
    if name not in server.units:
        raise BadTrace(
            f"{server.origin} saw nothing of {name}, only of {', '.join(sorted(server.units))}; "
            f"--add-model {name}=like:ONE_OF_THESE,rate=N adds what it would be."
        )
    return server.units[name]


def _like(unit: Unit, name: str) -> Unit:
    return replace(unit, facts=replace(unit.facts, unit=name, model=name))


def _spread(
    learned: Mapping[tuple[str, str], T], first: str, names: Sequence[str]
) -> dict[tuple[str, str], T]:
    """What was learned of the first card is known of those like it."""
    mine = {unit: told for (unit, device), told in learned.items() if device == first}
    return {(unit, name): told for unit, told in mine.items() for name in names}
