"""Operators who wait, by what they wait for. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.errors import EngineError
from engine.memory.effects import Answer, Effect


@dataclass(frozen=True, slots=True)
class PinAsk:
    """A pin of a unit whose size is not known yet."""

    ask: int
    device: str | None
    slots: int
    passing: bool = False


@dataclass(slots=True)
class Asks:
    loads: dict[str, list[int]] = field(default_factory=dict)
    """By unit: until it is ready anywhere."""
    pins: dict[str, list[PinAsk]] = field(default_factory=dict)
    """By unit: until it is inspected. After that they wait at its seat."""
    unloads: dict[int, set[tuple[str, str]]] = field(default_factory=dict)
    """What each waits for to be gone, by unit and device."""

    def unloads_of(self, key: tuple[str, str]) -> bool:
        """Whether an operator wants it to go."""
        return any(key in keys for keys in self.unloads.values())

    def loaded(self, unit: str) -> list[Effect]:
        return [Answer(ask) for ask in self.loads.pop(unit, [])]

    def gone(self, key: tuple[str, str]) -> list[Effect]:
        """It is not there any more: those who waited for that alone have their answer."""
        for keys in self.unloads.values():
            keys.discard(key)
        done = [ask for ask, keys in self.unloads.items() if not keys]
        for ask in done:
            del self.unloads[ask]
        return [Answer(ask) for ask in done]

    def keep(self, key: tuple[str, str], error: EngineError) -> list[Effect]:
        """It does not go after all: those who waited for that are told why."""
        refused = [ask for ask, keys in self.unloads.items() if key in keys]
        for ask in refused:
            del self.unloads[ask]
        return [Answer(ask, error) for ask in refused]

    def refuse(self, unit: str, error: EngineError) -> list[Effect]:
        """It cannot be had."""
        pins = [pin.ask for pin in self.pins.pop(unit, [])]
        return [Answer(ask, error) for ask in [*self.loads.pop(unit, []), *pins]]
