"""The same traffic on an engine of simulated models on the real clock, and in the twin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.actors.state_store import open_database
from engine.adapters import simulated
from engine.catalog import Catalog
from engine.config import Settings
from engine.devices.simulated import Simulated
from engine.offload import Inline
from engine.parts import Parts
from replay.configurations import Configuration
from replay.plan import Basis
from replay.realrun import REST, SEEDS, Bench, flood, in_the_twin, served_of, validate
from replay.trace import Trace
from replay.twin.described import simulated_server
from replay.twin.recorded import measured
from replay.twin.server import Card
from replay.twin.traffic import Traffic
from replay.twin.twin import simulate
from replay.validation import ALL, Measured, Validation, served
from tests.engine.actors.conftest import REAL_CLOCK
from tests.simulation import MIB, catalog, model

pytestmark = [pytest.mark.anyio, REAL_CLOCK]

SETTINGS = Settings.model_validate({"devices": "simulated:a", "headroom": 0.0, "catalog_watch": False})

SLOW = {
    "load_seconds": 0.2,
    "seconds_per_batch": 0.03,
    "seconds_per_cost": 0.0005,
    "weights_bytes": 100 * MIB,
}


CARD = Card("simulated:a", "simulated", 1, 400 * MIB)


def models() -> Catalog:
    return catalog(model("a", options=SLOW), model("b", options=SLOW))


async def opening(settings: Settings, folder: Path) -> Parts:
    """Room for one of the two, unless the settings give more."""
    return Parts(
        devices=(Simulated("simulated:a", slots=1, memory=settings.memory or 160 * MIB),),
        locate=lambda spec: Path("/"),
        family=lambda name: simulated.FAMILY,
        opening=Inline(),
        preparing=Inline(),
        state=open_database(folder / "state.db", "full"),
        traffic=open_database(folder / "traffic.db", "normal"),
    )


def sent(seconds: float) -> Trace:
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, seconds, int(12 * seconds)))
    which = ["a" if t % 2 < 1.4 else "b" for t in times]
    return Trace.of("sent", times, models=which, input_size=rng.integers(3, 40, len(times)))


async def test_the_twin_of_a_real_run_is_near_the_next_one(tmp_path):
    bench = Bench(SETTINGS, models(), opening=opening)
    real = await bench.run(sent(3), SETTINGS)
    server = Configuration("as it is").server(measured(real.recording), SETTINGS)

    answers = real.measured.answers
    assert len(answers) == 36 and np.isfinite(answers.latency).all() and real.lag < 1
    assert real.measured.swaps.keys() == {"a", "b"}
    assert real.measured.peaks == {"a": 100 * MIB, "b": 100 * MIB}
    twins = in_the_twin(server, real.recording)
    assert twins[0].peaks == real.measured.peaks and len(twins) == SEEDS
    assert all(abs(sum(t.swaps.values()) - sum(real.measured.swaps.values())) <= 1 for t in twins)
    assert np.median(twins[0].answers.latency) == pytest.approx(np.median(answers.latency), rel=0.5)

    basis, heard = Basis(server, sent(3), sent(3), 0, tmp_path), list[str]()
    roomy = Configuration("roomy", {"memory": 400 * MIB})
    choices = [Configuration("as it is"), roomy, Configuration("faster", speed=2.0)]
    found, _ = await validate(basis, bench, 2.0, choices, heard.append)

    whole = found.errors[0]
    assert whole.model == ALL and 15 < whole.requests < 30 and found.devices == ("simulated:a",)
    assert abs(whole.p50) < 0.6 and found.noise[0].model == ALL
    assert [each.name for each in found.tried] == ["as it is", "roomy", "faster"]
    assert all(each.real > 0 and each.twin > 0 for each in found.tried)
    assert found.capacity_error is not None and abs(found.capacity_error) < 0.6
    assert heard[-1] == "all of it at once" and "roomy" in heard
    found.save(tmp_path)
    assert Validation.load(tmp_path, found.curves) == found
    assert basis.provenance(False)["validated_at"] == found.at


async def test_what_comes_at_once_comes_after_a_part_of_it_in_good_order():
    trace = sent(10)

    both = flood(trace)

    calm = len(both) - len(trace)
    assert calm == round(len(trace) / 4) and both.arrived[:calm].tolist() == trace.arrived[:calm].tolist()
    assert both.arrived[calm] == pytest.approx(both.arrived[calm - 1] + REST)
    assert np.ptp(both.arrived[calm:]) <= 0.01
    assert both.input_size[calm:].tolist() == trace.input_size.tolist()


async def test_what_is_served_of_it_is_counted_from_when_it_came():
    server = Configuration("as it is").server(simulated_server(SETTINGS, models(), [CARD]), SETTINGS)
    results = simulate(server, Traffic.of(flood(sent(10)), server))
    found = served_of(Measured(results.answers), len(sent(10)))
    at_once = replace(sent(10), arrived=np.zeros(len(sent(10))))
    alone = served(Measured(simulate(server, Traffic.of(at_once, server)).answers))
    assert found == pytest.approx(alone, rel=0.3)
    assert found > 2 * served(Measured(results.answers))
