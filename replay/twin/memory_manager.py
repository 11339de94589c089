"""What the memory manager does with `Custody`'s effects, on the twin's clock."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, assert_never

from engine.conversation import Denied, Granted, Left, Ready, TooLarge, Unavailable, Wanted
from engine.events import ResidencyChanged
from engine.memory.custody import Custody
from engine.memory.effects import Abandon, Answer, BeginLoad, BeginUnload, DropHost, Effect, Inspect
from engine.memory.holdings import Holdings
from engine.memory.host_tier import HostTier
from engine.memory.ledger import Ledger, Line
from engine.units import UnitFacts
from replay.twin.clock import Clock, Seat
from replay.twin.company import Company
from replay.twin.results import Peaks
from replay.twin.server import Server
from replay.twin.sharing import Sharing

if TYPE_CHECKING:
    from replay.twin.batcher import Batcher


class MemoryManager:
    batcher: Batcher

    def __init__(
        self,
        server: Server,
        facts: Mapping[str, UnitFacts],
        clock: Clock,
        company: Company,
        sharing: Mapping[str, Sharing],
        seed: int,
    ) -> None:
        self._units = server.units
        self._cards = {card.name: card for card in server.cards}
        self._clock = clock
        self._company = company
        self._sharing = sharing
        self._luck = {unit: random.Random(f"{seed}/{unit}/loads") for unit in server.units}
        self._aside: set[str] = set()
        self._asks = 0
        self.custody = _custody(server, facts)
        self.seat: Seat[Effect] = Seat(clock, self)
        self.changes: list[ResidencyChanged] = []
        self.peaks = Peaks()
        self.refused: list[str] = []

    @property
    def wake_at(self) -> float:
        return self.custody.wake_at

    def wake(self) -> None:
        self.perform(self.custody.on_wake(self._clock.now))

    def pin(self, unit: str) -> None:
        self._asks += 1
        self.seat.tell(self.custody.on_pin, unit, self._asks)

    def load(self, unit: str) -> None:
        self._asks += 1
        self.seat.tell(self.custody.on_load, unit, self._asks)

    def on_wanted(self, wanted: Wanted, now: float) -> list[Effect]:
        return self.custody.on_wanted(wanted.unit, now, wanted.urgency, wanted.due, wanted.there)

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Granted():
                    self._note(effect.lease.unit, effect.lease.device)
                    self.batcher.granted(effect)
                case Ready():
                    self.batcher.ready(effect)
                case Left():
                    self.batcher.left(effect)
                case Denied() | TooLarge() | Unavailable():
                    self.batcher.told(effect)
                case BeginLoad():
                    self._note(effect.unit, effect.device)
                    self._clock.soon(lambda e=effect: self._load(e))  # type: ignore[misc]
                case BeginUnload():
                    self._clock.soon(lambda e=effect: self._unload(e))  # type: ignore[misc]
                case Inspect():
                    self._clock.soon(lambda unit=effect.unit: self._inspected(unit))  # type: ignore[misc]
                case ResidencyChanged():
                    self.changes.append(effect)
                case DropHost():
                    self._aside.discard(effect.unit)
                case Answer():
                    if effect.error is not None:
                        self.refused.append(effect.error.message)
                case Abandon():
                    pass
                case _:
                    assert_never(effect)

    def _inspected(self, unit: str) -> None:
        self.seat.tell(self.custody.on_inspected, unit, self._units[unit].footprint)

    def _load(self, begin: BeginLoad) -> None:
        unit, device, clock = begin.unit, begin.device, self._clock
        seconds = self._units[unit].loads.draw(begin.from_host, self._luck[unit])
        here = self._company.enter(device)
        self._sharing[device].load(seconds, partial(self._loaded, unit, device, clock.now, here))

    def _loaded(self, unit: str, device: str, began: float, here: int) -> None:
        self._company.leave(device, here)
        self.seat.tell(self.custody.on_loaded, unit, device, self._clock.now - began)

    def _unload(self, begin: BeginUnload) -> None:
        unit, device = begin.unit, begin.device
        if not begin.keep:
            self._unloaded(unit, device, 0, None)
            return
        seconds = self._units[unit].loads.draw(True, self._luck[unit])
        here = self._company.enter(device)
        kept = self._units[unit].footprint.weights_bytes
        self._sharing[device].load(seconds, partial(self._unloaded, unit, device, kept, here))

    def _unloaded(self, unit: str, device: str, kept: int, here: int | None) -> None:
        if here is not None:
            self._company.leave(device, here)
            self._aside.add(unit)
        self.seat.tell(self._gone, unit, device, kept)

    def _gone(self, unit: str, device: str, kept: int, now: float) -> list[Effect]:
        return self.custody.on_unloaded(unit, device, now, kept)

    def _note(self, unit: str, device: str) -> None:
        """Remember the most that is held."""
        held, peaks = self.custody.held, self.peaks
        used = held.ledgers[device].used_bytes
        if used > peaks.devices.get(device, 0):
            peaks.devices[device] = used
        resident = held.residents[unit, device]
        own = resident.held_bytes + resident.workspace_bytes
        if own > peaks.units.get((unit, device), 0):
            peaks.units[unit, device] = own


def _custody(server: Server, facts: Mapping[str, UnitFacts]) -> Custody:
    ledgers = {card.name: Ledger(card.memory_bytes, server.headroom) for card in server.cards}
    for card in server.cards:
        ledgers[card.name].hold(Line.CONTEXT, "", card.context_bytes)
    tiered = [card.name for card in server.cards if card.host_tier]
    held = Holdings(
        facts.__getitem__,
        ledgers,
        {card.name: card.kind for card in server.cards},
        {card.name: card.slots for card in server.cards},
        HostTier(server.host_memory if tiered else 0),
        tiered,
    )
    custody = Custody(held, server.memory)
    custody.learn(server.workspaces)
    return custody
