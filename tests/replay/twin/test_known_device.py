"""The twin of a recorded device whose law is known, against that device on other traffic: p50, p95, p99 and
what is served at most, within the goals of a validation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from engine.catalog import Catalog
from engine.config import Settings
from replay.configurations import Configuration
from replay.realrun import in_the_twin, measured_of
from replay.recording import Recording, read_database
from replay.trace import Trace
from replay.twin.recorded import measured
from replay.twin.server import Server
from replay.twin.traffic import Shape, Traffic
from replay.validation import GATES, errors, middle, served
from tests.replay.twin.recordings import made
from tests.replay.twin.shared import Shared
from tests.simulation import MIB, catalog, model

SETTINGS = Settings.model_validate({"devices": "simulated:a", "headroom": 0.0, "catalog_watch": False})
MODELS = ("m0", "m1", "m2")


def models() -> Catalog:
    return catalog(
        *(
            model(
                name,
                options={
                    "weights_bytes": 100 * MIB,
                    "seconds_per_batch": 0.006 + 0.004 * n,
                    "seconds_per_cost": 0.0004 + 0.0002 * n,
                    "load_seconds": 0.3,
                    "workspace_per_cost": 100.0,
                },
                limits={"max_batch_cost": 512},
            )
            for n, name in enumerate(MODELS)
        )
    )


def sent(count: int, rate: float, seed: int) -> Traffic:
    """Three at about one moment, mostly for the first model."""
    rng = np.random.default_rng(seed)
    moments = np.repeat(rng.uniform(0, count / rate, count // 3), 3) + rng.exponential(0.05, count // 3 * 3)
    shapes: dict[Shape, int] = {}
    names = rng.choice(MODELS, len(moments), p=[0.6, 0.3, 0.1])
    costs = np.clip(rng.lognormal(3, 0.8, len(moments)), 2, 200).astype(int)
    rows = [
        shapes.setdefault(Shape(name, (int(cost),)), len(shapes))
        for name, cost in zip(names, costs, strict=True)
    ]
    return Traffic(Trace.of("made", np.sort(moments), models=names, input_size=rows), tuple(shapes))


@dataclass(frozen=True)
class Law:
    """Of the device, and how fast it is asked."""

    slowed: tuple[float, ...]
    loading: float
    memory: int
    rate: float

    def device(self, slots: int, memory: int, seed: int) -> Shared:
        law = {"slowed": self.slowed, "loading": self.loading, "scatter": 0.15}
        return Shared(slots=slots, memory=memory, seed=seed, **law)

    def ran(self, traffic: Traffic, seed: int) -> Recording:
        device = self.device(len(self.slowed), self.memory, seed)
        with TemporaryDirectory() as folder:
            return read_database(made(Path(folder), SETTINGS, models(), device, traffic), "made")


IN_TURN = Law(slowed=(1.0, 1.6), loading=1.5, memory=230 * MIB, rate=10.0)
"""Two of the three fit; batches slow each other a lot, and loads what runs beside them."""

COUNT = 1200
"""Requests: of fewer, two runs of the device itself differ by as much as the goals allow."""


@cache
def learned() -> Server:
    return measured(IN_TURN.ran(sent(COUNT, IN_TURN.rate, 1), 1))


def test_quantiles_of_other_traffic_are_within_the_goals():
    server = Configuration("as it was", cold=True).server(learned(), SETTINGS)
    assert server.cards[0].slowed[1] == pytest.approx(IN_TURN.slowed[1], rel=0.05)
    assert server.cards[0].loading == pytest.approx(IN_TURN.loading, rel=0.1)
    real = IN_TURN.ran(sent(COUNT, IN_TURN.rate, 2), 3)

    whole = errors(measured_of(real), *in_the_twin(server, real))[0]

    assert abs(whole.p50) <= GATES["p50"] and abs(whole.p95) <= GATES["p95"]
    assert abs(whole.p99) <= GATES["p99"] and whole.swaps[0] == pytest.approx(whole.swaps[1], rel=0.1)


def test_what_is_served_at_most_is_within_the_goal():
    """All at once, with room for all: batches are larger than any that was recorded."""
    traffic = sent(COUNT // 2, IN_TURN.rate, 5)
    at_once = replace(traffic, trace=replace(traffic.trace, arrived=np.linspace(0, 0.01, len(traffic))))
    room = Configuration("room", {"memory": 400 * MIB}, cold=True)
    real = replace(IN_TURN, memory=400 * MIB).ran(at_once, 6)

    twins = in_the_twin(room.server(learned(), SETTINGS), real)

    most = served(measured_of(real))
    assert middle([served(twin) for twin in twins]) == pytest.approx(most, rel=GATES["capacity"])
