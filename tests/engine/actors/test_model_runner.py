"""A runner on a simulated device: what it tells the batcher of memory, peaks and a device that is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from engine.actors.actor import Mailbox
from engine.actors.model_runner import ModelRunner
from engine.adapters.family import Prepared
from engine.adapters.simulated import Declared, SimulatedModel
from engine.conversation import Finished, Idle, JobRef, Lease, Run
from engine.devices.simulated import Simulated
from engine.payloads import Payloads
from engine.requests import Task
from tests.simulation import device

pytestmark = pytest.mark.anyio

LEASE = Lease(1, "m@", "simulated:a", "simulated:a/0", 100)


@dataclass
class Told:
    """The batcher's end of the conversation."""

    messages: list[Any] = field(default_factory=list)

    def tell(self, message: Any) -> None:
        self.messages.append(message)


def batch(*costs: int, number: int = 1, generative: bool = False) -> Run:
    refs = tuple(JobRef(f"{number}.{n}", cost, f"{number}.{n}") for n, cost in enumerate(costs))
    return Run(number, LEASE, refs, generative=generative, seconds=1.0)


@asynccontextmanager
async def runner(card: Simulated, **declared: Any) -> AsyncIterator[tuple[Mailbox[Run], Payloads, Told]]:
    told, payloads = Told(), Payloads()
    model = SimulatedModel(Declared(seconds_per_batch=1.0, **declared), 8)
    with Mailbox[Run](1) as mailbox:
        actor = ModelRunner(
            mailbox,
            name=LEASE.slot,
            slot=0,
            device=card,
            models={(LEASE.unit, LEASE.device): model},
            payloads=payloads,
            batcher=told,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(actor.run)
            yield mailbox, payloads, told
            tasks.cancel_scope.cancel()


async def run(card: Simulated, *runs: Run, task: Task = Task.ENCODE, **declared: Any) -> list[Any]:
    """What the batcher is told when it sends these, one after another."""
    async with runner(card, **declared) as (mailbox, payloads, told):
        for sent in runs:
            for job in sent.jobs:
                payloads.prepared[job.payload] = Prepared(job.cost, (task, "text", 1), 9)
            mailbox.tell(sent)
            await anyio.sleep(10.0)
    return told.messages


async def test_a_finished_batch_tells_its_peak_and_the_slot_is_idle_again():
    first, finished, again = await run(device(), batch(2, 3), workspace_per_cost=10.0)

    assert first == again == Idle(LEASE.slot)
    assert finished.peak_bytes == 50 and len(finished.outcomes) == 2 and not finished.lost


async def test_a_quantum_tells_its_peak_too():
    _, finished, _ = await run(
        device(), batch(7, generative=True), task=Task.GENERATE, workspace_per_cost=10.0
    )

    assert finished.peak_bytes == 70 and finished.outcomes[0].failure is None


async def test_a_job_that_alone_is_too_large_says_that_memory_ran_out():
    _, finished, _ = await run(device(), batch(2, 9), out_of_memory_above=4)

    assert finished.out_of_memory
    assert [o.failure and o.failure.kind for o in finished.outcomes] == [None, "ResourceExhausted"]


@pytest.mark.parametrize("generative", [False, True])
async def test_a_lost_device_is_told_once_and_the_slot_is_never_idle_again(generative):
    task = Task.GENERATE if generative else Task.ENCODE
    idle, finished = await run(device(lost_at=1), batch(1, 1, generative=generative), task=task)

    assert idle == Idle(LEASE.slot)
    assert isinstance(finished, Finished) and finished.lost
    assert finished.outcomes == () and finished.run == 1 and finished.spent == pytest.approx(1.0, abs=0.1)


async def test_the_batches_before_the_loss_are_whole():
    messages = await run(device(lost_at=2), batch(1), batch(1, number=2))

    done = [message for message in messages if isinstance(message, Finished)]
    assert [(m.run, m.lost, len(m.outcomes)) for m in done] == [(1, False, 1), (2, True, 0)]
    assert messages[-1] is done[-1]
