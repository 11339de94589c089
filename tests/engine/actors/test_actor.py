"""Replies, mailboxes, actors and their supervision."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

import anyio
import pytest

from engine.actors.actor import Actor, Mailbox, Reply, supervise
from engine.errors import QueueFull, Stopped

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Double:
    reply: Reply[int]
    number: int


@dataclass(frozen=True)
class Crash:
    pass


class Doubler(Actor[Double | Crash]):
    """Doubles a number, slowly when it is large, never when it is 13."""

    lives = 0

    def start(self):
        type(self).lives += 1

    def handle(self, message):
        match message:
            case Crash():
                raise RuntimeError("a bug")
            case Double(number=13):
                pass
            case Double(number=number) if number > 99:
                self.spawn(self._slowly, message)
            case Double():
                message.reply.resolve(message.number * 2)

    async def _slowly(self, message):
        await anyio.sleep(1)
        message.reply.resolve(message.number * 2)


@pytest.fixture
async def doubler():
    """A mailbox whose actor runs until the test ends."""
    with Mailbox(5) as mailbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Doubler(mailbox).run)
            yield mailbox
            tasks.cancel_scope.cancel()


async def test_who_asks_is_answered(doubler):
    assert await doubler.ask(Double, number=21) == 42


async def test_slow_work_is_done_beside_the_mailbox(doubler):
    began, answers = anyio.current_time(), []

    async def ask(number):
        answers.append(await doubler.ask(Double, number=number))

    async with anyio.create_task_group() as tasks:
        for number in (100, 200, 1):
            tasks.start_soon(ask, number)

    assert sorted(answers) == [2, 200, 400] and answers[0] == 2
    assert anyio.current_time() - began == pytest.approx(1.0)


async def test_asks_are_refused_beyond_the_mailbox_s_capacity_and_tells_are_not():
    with Mailbox(2) as mailbox:
        for number in range(2):
            mailbox.post(Reply(), Double(Reply(), number))

        with pytest.raises(QueueFull) as refused:
            await mailbox.ask(Double, number=3)
        mailbox.tell(Crash())

        assert refused.value.retry_after == 0.1
        assert len(mailbox) == 3


async def test_messages_come_in_the_order_they_were_told():
    with Mailbox(9) as mailbox:
        for number in range(5):
            mailbox.tell(number)

        first = await mailbox.receive()
        rest = list(mailbox.burst(3))

        assert (first, rest, len(mailbox)) == (0, [1, 2, 3], 1)


async def test_whoever_waits_may_be_roused_without_a_message():
    with Mailbox(9) as mailbox:
        async with anyio.create_task_group() as tasks:

            async def rouse():
                await anyio.sleep(2)
                mailbox.rouse()

            began = anyio.current_time()
            tasks.start_soon(rouse)
            assert await mailbox.receive() is None
            assert anyio.current_time() - began == pytest.approx(2.0)
            mailbox.tell("later")
            assert await mailbox.receive() == "later"


async def test_receiving_again_after_being_cancelled_loses_nothing():
    with Mailbox(9) as mailbox:
        with anyio.move_on_after(1):
            await mailbox.receive()
        mailbox.tell("later")

        assert await mailbox.receive() == "later"


async def test_a_closed_mailbox_tells_who_asks_and_who_tells():
    with Mailbox(9) as mailbox:
        reply = Reply()
        mailbox.post(reply, Double(reply, 1))

    with pytest.raises(Stopped):
        await reply
    with pytest.raises(Stopped):
        mailbox.tell(Crash())


async def test_only_the_first_answer_counts():
    reply = Reply()
    reply.resolve(1)
    reply.resolve(2)
    reply.fail(RuntimeError())

    assert await reply == 1 and reply.error is None


async def test_a_failed_reply_raises_and_says_what_it_was_told():
    reply, error = Reply(), QueueFull("full")
    reply.fail(error)
    reply.resolve(2)

    with pytest.raises(QueueFull, match="full"):
        await reply
    assert reply.error is error


async def test_who_stops_waiting_closes_the_reply(doubler):
    reply = Reply()
    doubler.post(reply, Double(reply, 13))

    with anyio.move_on_after(1):
        await reply

    assert reply.closed
    reply.resolve(26)  # and nothing happens


async def test_a_mailbox_keeps_no_reply_that_is_closed():
    with Mailbox(9) as mailbox:
        for end in (lambda r: r.resolve(1), lambda r: r.fail(QueueFull()), lambda r: r.leave()):
            reply = Reply()
            alone = sys.getrefcount(reply)
            mailbox.post(reply, "a letter")
            kept = sys.getrefcount(reply)
            end(reply)

            assert sys.getrefcount(reply) == alone < kept


async def test_messages_that_lie_there_are_handled_as_of_one_moment():
    class Slow(Actor):
        def __init__(self, mailbox):
            super().__init__(mailbox)
            self.moments = []

        def handle(self, message):
            self.moments.append((self.now, anyio.current_time()))

    with Mailbox(9) as mailbox:
        actor = Slow(mailbox)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(actor.run)
            for _ in range(3):
                mailbox.tell("now")
            await anyio.sleep(1)
            mailbox.tell("later")
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()

    seen = [now for now, _ in actor.moments]
    assert seen == [actual for _, actual in actor.moments]
    assert seen[0] == seen[1] == seen[2] < seen[3]


async def test_an_actor_that_ends_leaves_nobody_waiting():
    with Mailbox(9) as mailbox:
        answers = []

        async def ask():
            try:
                await mailbox.ask(Double, number=13)
            except Stopped as stopped:
                answers.append(stopped.message)

        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as actors:
                actors.start_soon(Doubler(mailbox).run)
                for _ in range(3):
                    tasks.start_soon(ask)
                await anyio.sleep(1)
                actors.cancel_scope.cancel()

        assert answers == [str(Stopped())] * 3


async def test_timers_are_kept_while_messages_pour_in():
    class Ticker(Actor[int]):
        ticks, at = 0, 0.0

        def start(self):
            self.at = anyio.current_time() + 1

        def handle(self, message):
            if message:
                self.mailbox.tell(message)  # there is always one more

        def wake_at(self):
            return self.at

        def wake(self):
            self.ticks, self.at = self.ticks + 1, self.at + 1

    async def nudge():
        """Virtual time only passes when everybody waits, so a real pause is told by messages."""
        for _ in range(35):
            await anyio.sleep(0.1)
            mailbox.tell(0)

    with Mailbox(9) as mailbox:
        ticker = Ticker(mailbox)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ticker.run)
            await nudge()
            tasks.cancel_scope.cancel()

    assert ticker.ticks == 3


async def test_a_crashed_actor_is_started_again_on_the_same_mailbox(caplog):
    caplog.set_level(logging.CRITICAL, "engine.actors.actor")
    Doubler.lives = 0
    with Mailbox(9) as mailbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervise, lambda: Doubler(mailbox))
            mailbox.tell(Crash())
            await anyio.sleep(0.05)
            answer = await mailbox.ask(Double, number=4)  # waits for the fresh one
            tasks.cancel_scope.cancel()

    assert (answer, Doubler.lives) == (8, 2)


async def test_an_actor_that_crashes_again_and_again_is_given_up(caplog):
    caplog.set_level(logging.CRITICAL, "engine.actors.actor")
    Doubler.lives, began = 0, anyio.current_time()
    with Mailbox(9) as mailbox:
        for _ in range(4):
            mailbox.tell(Crash())

        with pytest.raises(ExceptionGroup) as crash:
            await supervise(lambda: Doubler(mailbox), pauses=(0.1, 1.0, 10.0))

    assert crash.group_contains(RuntimeError, match="a bug")
    assert Doubler.lives == 4
    assert anyio.current_time() - began == pytest.approx(11.1)
