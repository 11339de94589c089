"""The cores in virtual time, as load tests use them: the tests' twin without its look at the books."""

from __future__ import annotations

from collections.abc import Iterable

from tests.engine.twin import Sim, Twin


class Unchecked(Twin):
    """Its tests check the books after each message; here only time is wanted."""

    def check(self) -> None:
        return


def card(per_batch: float = 0.002, per_cost: float = 0.0001, units: Iterable[str] = ("m",)) -> list[Sim]:
    """Units that fit beside each other and differ in nothing but their names."""
    return [Sim(unit, load_seconds=0.1, per_batch=per_batch, per_cost=per_cost) for unit in units]
