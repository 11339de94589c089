"""What the batcher does with what its core decides: answers, drains, windows and second tries."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager

import anyio
import pytest

from engine.actors.actor import Mailbox, Reply
from engine.actors.batcher import Batcher
from engine.actors.messages import Drain, Enqueue, Let
from engine.conversation import Finished, Granted, Idle, Lease, Need, Outcome, Ready, Release, Run
from engine.errors import Failure, ResourceExhausted
from engine.payloads import Payloads
from engine.requests import EncodeOptions, Item, Request, ServiceClass, Task, Usage
from engine.scheduling.dispatch import Dispatch
from engine.scheduling.lanes import Job
from engine.scheduling.rules import SchedulingRules
from engine.units import UnitFacts

pytestmark = pytest.mark.anyio

EXHAUSTED = Failure("ResourceExhausted", "no memory")


class Told:
    """Somebody who is told things and keeps them."""

    def __init__(self):
        self.letters = []

    def tell(self, message):
        self.letters.append(message)

    def of(self, kind):
        return [letter for letter in self.letters if isinstance(letter, kind)]


class Desk:
    """A batcher whose neighbours are this test."""

    def __init__(self, mailbox, slots):
        self.mailbox, self.memory, self.runner, self.observer = mailbox, Told(), Told(), Told()
        self.router, self.payloads = Told(), Payloads()
        names = {f"d/{n}": "d" for n in range(slots)}
        dispatch = Dispatch(lambda unit: UnitFacts(unit, unit, ("s",)), SchedulingRules(), names, {"d": "s"})
        self.batcher = Batcher(
            mailbox,
            dispatch=dispatch,
            max_hold=60.0,
            payloads=self.payloads,
            memory=self.memory,
            runners=dict.fromkeys(names, self.runner),
            router=self.router,
            observers=[self.observer],
        )
        self.numbers = iter(range(1, 10_000))
        for slot in names:
            mailbox.tell(Idle(slot))

    def send(self, unit="a"):
        reply, number, now = Reply(), str(next(self.numbers)), anyio.current_time()
        job = Job(f"{number}/0", number, unit, 8, ServiceClass.STANDARD, now, now + 2.0)
        request = Request(number, Task.ENCODE, unit, (Item(text="x"),), EncodeOptions())
        self.mailbox.tell(Enqueue(reply, request, number, unit, unit, (job,), (Usage(),), {}, 0.0, now, 100))
        return reply

    async def grant(self):
        """The batch that came of it, if one did."""
        await settle()
        need = self.memory.of(Need)[-1]
        self.memory.letters.remove(need)
        lease = Lease(next(self.numbers), need.unit, need.device, need.slot, 1 << 30)
        self.mailbox.tell(Granted(lease))
        await settle()
        return next(reversed(self.runner.of(Run)), None)

    async def finish(self, run, failure=None, **fields):
        outcomes = []
        for ref in run.jobs:
            self.payloads.outputs[ref.id] = "an output"
            outcomes.append(Outcome(ref.id, failure=failure) if failure else Outcome(ref.id, output=ref.id))
        self.mailbox.tell(Finished(run.id, run.lease, tuple(outcomes), 0.01, **fields))
        self.mailbox.tell(Idle(run.lease.slot))
        await settle()


async def settle():
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def opened(slots=1):
    with Mailbox(100) as mailbox:
        desk = Desk(mailbox, slots)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.batcher.run)
            desk.mailbox.tell(Ready("a", "d", 0.1))
            yield desk
            tasks.cancel_scope.cancel()


def drain(desk, *units):
    reply = Reply()
    desk.mailbox.tell(Drain(reply, "a", units))
    return reply


async def test_a_drain_is_answered_when_no_request_for_its_units_is_open():
    async with opened() as desk:
        mine, others = desk.send("a"), desk.send("b")
        waits = drain(desk, "a", "c")
        await settle()
        assert not waits.closed

        await desk.finish(await desk.grant())

        assert mine.closed and waits.closed and not others.closed


async def test_a_drain_of_what_nobody_asked_for_is_answered_at_once():
    async with opened() as desk:
        desk.send("b")
        nothing = drain(desk, "a")
        await settle()

        assert nothing.closed


async def test_requests_that_failed_or_were_given_up_are_drained_too():
    async with opened() as desk:
        desk.send("a").leave()
        waits = drain(desk, "a")
        run = await desk.grant()

        assert run is None and waits.closed


async def test_a_job_that_is_tried_again_is_answered_once_by_its_second_run():
    async with opened() as desk:
        reply = desk.send()
        await desk.finish(await desk.grant(), EXHAUSTED, out_of_memory=True, peak_bytes=5)
        assert not reply.closed
        (release,) = desk.memory.of(Release)
        assert (release.cost, release.peak_bytes, release.out_of_memory) == (8, 5, True)

        again = await desk.grant()
        await desk.finish(again)

        assert again.attempt == 2
        assert (await reply).outputs == ("an output",)


async def test_the_second_time_the_error_is_the_answer():
    async with opened() as desk:
        reply = desk.send()
        for _ in range(2):
            await desk.finish(await desk.grant(), EXHAUSTED, out_of_memory=True)

        with pytest.raises(ResourceExhausted):
            await reply


async def test_what_the_requests_of_a_batch_held_is_let_go_at_once():
    async with opened() as desk:
        replies = [desk.send("a") for _ in range(3)]
        run = await desk.grant()
        await desk.finish(run)

        assert len(run.jobs) == 3 and all(reply.closed for reply in replies)
        assert desk.router.of(Let) == [Let(300)]


async def test_a_slot_that_waits_for_company_goes_when_nobody_comes():
    async with opened(slots=2) as desk:
        desk.send()
        await desk.grant()
        await anyio.sleep(1e-4)
        desk.send()
        await anyio.sleep(1e-4)
        desk.send()
        await settle()
        assert not desk.memory.of(Need) and desk.batcher.wake_at() < math.inf

        await anyio.sleep(0.002)

        assert len((await desk.grant()).jobs) == 2
