"""The twin and the unchanged actors, on the same traffic: batch by batch."""

from __future__ import annotations

import anyio
import pytest

from engine.actors.model_runner import ModelRunner
from engine.config import Settings
from engine.conversation import Run
from replay.twin.described import simulated_server
from replay.twin.results import Results
from replay.twin.server import Card
from replay.twin.traffic import Traffic
from replay.twin.twin import BEGIN, simulate
from replay.virtualtime import VirtualTimeLoop
from tests.replay.twin.world import send, six_models, traffic
from tests.simulation import MIB, device, engine

Batch = tuple[str, tuple[str, ...], float]
"""Unit, jobs, and when it began. Which slot of a device it had is arbitrary when two come free at once."""

MEMORY = 420 * MIB
"""Room for half of the models."""


class Watched(ModelRunner):
    """A runner whose batches are written down as they come to it."""

    seen: list[Batch]

    def handle(self, message: Run) -> None:
        jobs = tuple(job.id for job in message.jobs)
        self.seen.append((message.lease.unit, jobs, anyio.current_time()))
        super().handle(message)


def actors(sent: Traffic, settings: dict, slots: int, host: bool) -> tuple[list[Batch], list[str]]:
    Watched.seen = []

    async def main() -> list[str]:
        there = device(slots=slots, memory=MEMORY, host_tier=host)
        async with engine(six_models(), devices=(there,), **settings) as opened:
            return await send(opened, sent, BEGIN)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("engine.wiring.ModelRunner", Watched)
        outcomes = anyio.run(main, backend_options={"loop_factory": VirtualTimeLoop})
    return Watched.seen, outcomes


def twin(sent: Traffic, settings: dict, slots: int, host: bool, seed: int = 0) -> Results:
    chosen = Settings.model_validate({"devices": "simulated:a", "headroom": 0.0} | settings)
    card = Card("simulated:a", "simulated", slots, MEMORY, host_tier=host)
    return simulate(simulated_server(chosen, six_models(), [card]), sent, seed, keep=True)


@pytest.mark.parametrize(("slots", "host"), [(1, False), (2, True)])
def test_every_batch_is_the_same_at_the_same_moment(slots, host):
    sent = traffic(5000, rate=60, seed=3)
    limits = {"host_memory": "300MiB" if host else "0", "max_model_jobs": 60, "max_hold": 20.0}
    world = (limits, slots, host)

    seen, outcomes = actors(sent, *world)
    results = twin(sent, *world)

    assert sum(change.event == "evicted" for change in results.changes) > 20
    assert {"ok", "degraded", "QUEUE_FULL", "DEADLINE_EXCEEDED"} <= {*outcomes}
    assert [(r.unit, r.jobs) for r in results.ran] == [(unit, jobs) for unit, jobs, _ in seen]
    assert [r.began for r in results.ran] == pytest.approx([at - BEGIN for _, _, at in seen], abs=1e-9)
    assert results.answers.told() == outcomes
