"""What happened is on disk, and a disk that fails harms nobody."""

from __future__ import annotations

import threading
import time
from contextlib import asynccontextmanager

import anyio
import pytest

from engine.actors import recorder as module
from engine.actors.actor import Mailbox
from engine.actors.recorder import Recorder
from engine.actors.recorder_messages import Flush
from engine.events import BatchDone, JobsDropped, RequestDone, ResidencyChanged
from tests.engine.actors.conftest import REAL_CLOCK

pytestmark = [pytest.mark.anyio, REAL_CLOCK]


def done(number: int = 0, **fields) -> RequestDone:
    given = {
        "request": f"q{number}",
        "model": "a",
        "task": "encode",
        "service_class": 1,
        "session": None,
        "arrived": anyio.current_time(),
        "outcome": "ok",
        "items": 2,
        "cost": 7,
        "input_tokens": 7,
        "output_tokens": 0,
        "prepare_seconds": 0.1,
        "queue_seconds": 0.2,
        "load_seconds": 0.0,
        "run_seconds": 0.3,
        "total_seconds": 0.6,
        "cold": False,
        "device": "cpu",
        "batches": ((1, 1), (2, 1)),
    }
    return RequestDone(**(given | fields))


@asynccontextmanager
async def recording(db, **fields):
    with Mailbox(10_000) as mailbox:
        recorder = Recorder(mailbox, db, **({"keep_days": 14, "every": 60.0} | fields))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(recorder.run)
            yield recorder, mailbox
            tasks.cancel_scope.cancel()


async def test_what_was_told_before_a_flush_is_on_disk_when_it_is_answered(database):
    async with recording(database()) as (_, mailbox):
        for number in range(500):
            mailbox.tell(done(number))
        mailbox.tell(BatchDone(1, "a", "cpu", "cpu/0", 2, 7, anyio.current_time(), 0.3, 0.25))
        mailbox.tell(ResidencyChanged("a", "cpu", "loaded", anyio.current_time(), 0.5, 100))
        mailbox.tell(JobsDropped("a", "expired", 1))
        await mailbox.ask(Flush)

        other = database()  # a reader of its own
        rows = list(other["requests"].rows)
        counts = other["batches"].count, other["residency"].count

    assert [row["request"] for row in rows] == [f"q{n}" for n in range(500)]
    assert (rows[0]["batches"], rows[0]["cost"], rows[0]["cold"]) == ("1:1,2:1", 7, 0)
    assert abs(rows[0]["recorded_at"] - time.time()) < 30
    assert counts == (1, 1)


async def test_rows_are_written_without_being_asked_for(database):
    async with recording(database(), every=0.01) as (_, mailbox):
        mailbox.tell(done())
        with anyio.fail_after(10):
            while not database()["requests"].count:  # noqa: ASYNC110  (another connection is the only witness)
                await anyio.sleep(0.02)


async def test_nothing_of_what_a_client_may_send_breaks_it(database):
    async with recording(database()) as (recorder, mailbox):
        mailbox.tell(done(1, model="half a \ud800 pair", session="\udcff", cost=2**70))
        mailbox.tell(done(2))
        await mailbox.ask(Flush)
        rows = list(database()["requests"].rows)

    assert [row["request"] for row in rows] == ["q1", "q2"]
    assert rows[0]["model"] == "half a ? pair" and recorder.dropped == 0


@pytest.mark.parametrize(
    "pragma", ["query_only=1", "max_page_count=1"], ids=["a database that may not be written", "a full disk"]
)
async def test_a_database_that_refuses_harms_nobody_and_is_counted(database, pragma):
    db = database()
    async with recording(db) as (recorder, mailbox):
        db.execute(f"pragma {pragma}")
        for number in range(2000):
            mailbox.tell(done(number, model="m" * 200))
        await mailbox.ask(Flush)
        assert recorder.dropped == 2000

        db.execute("pragma query_only=0")
        db.execute("pragma max_page_count=100000")
        mailbox.tell(done(1))
        await mailbox.ask(Flush)
        assert database()["requests"].count == 1


async def test_when_the_disk_cannot_follow_the_newest_are_dropped_and_counted(database, monkeypatch):
    monkeypatch.setattr(module, "MAX_ROWS", 10)
    db, gate = database(), threading.Event()
    async with recording(db, every=0.001) as (recorder, mailbox):
        db.conn.set_progress_handler(lambda: not gate.wait(60), 1)  # a disk that takes its time
        for number in range(30):
            mailbox.tell(done(number))
            await anyio.sleep(0.005)
        dropped = recorder.dropped
        gate.set()
        assert dropped == 20
        await mailbox.ask(Flush)
        mailbox.tell(done(99))
        await mailbox.ask(Flush)
        names = [row["request"] for row in database()["requests"].rows]

    assert names == [*(f"q{n}" for n in range(10)), "q99"]


async def test_old_rows_leave(database):
    db = database()
    async with recording(db) as (_, mailbox):
        mailbox.tell(done(1))
        await mailbox.ask(Flush)
        db["requests"].insert(db["requests"].get(1) | {"id": 7, "recorded_at": time.time() - 15 * 86400})
    async with recording(database()) as (_, mailbox):
        mailbox.tell(done(2))
        await mailbox.ask(Flush)
        names = [(row["id"], row["request"]) for row in database()["requests"].rows]

    assert names == [(1, "q1"), (8, "q2")]
