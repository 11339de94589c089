"""What must survive: a commit is on disk when it is answered."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest

from engine.actors import state_store
from engine.actors.actor import Mailbox
from engine.actors.messages import Conclude, Intend, KeepCurves
from engine.actors.state_store import StateStore
from engine.errors import EngineError
from tests.engine.actors.conftest import REAL_CLOCK

pytestmark = [pytest.mark.anyio, REAL_CLOCK]


@asynccontextmanager
async def storing(db):
    with Mailbox(100) as mailbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(StateStore(mailbox, db).run)
            yield mailbox
            tasks.cancel_scope.cancel()


async def test_an_intent_is_on_disk_before_the_action_and_its_outcome_after(database):
    async with storing(database()) as mailbox:
        intent = await mailbox.ask(Intend, who="ann", action="pin", target="a", reason="demo")
        (before,) = database()["audit"].rows
        await mailbox.ask(Conclude, intent=intent, who="ann", outcome="ok", pinned="a")
        (after,) = database()["audit"].rows

    assert (before["who"], before["action"], before["target"], before["reason"]) == (
        "ann",
        "pin",
        "a",
        "demo",
    )
    assert before["outcome"] is None and after["outcome"] == "ok"
    assert after["concluded_at"] >= after["recorded_at"]


async def test_pins_survive_and_the_oldest_comes_first(database):
    async with storing(database()) as mailbox:
        for unit in ("b", "a", "c"):
            intent = await mailbox.ask(Intend, who="ann", action="pin", target=unit)
            await mailbox.ask(Conclude, intent=intent, who="ann", outcome="ok", pinned=unit)
        intent = await mailbox.ask(Intend, who="ann", action="unpin", target="a")
        await mailbox.ask(Conclude, intent=intent, who="ann", outcome="ok", unpinned="a")

    assert state_store.pins(database()) == ["b", "c"]


async def test_a_pin_that_failed_is_no_pin(database):
    async with storing(database()) as mailbox:
        intent = await mailbox.ask(Intend, who="ann", action="pin", target="a")
        await mailbox.ask(Conclude, intent=intent, who="ann", outcome="INSUFFICIENT_MEMORY")

    assert state_store.pins(database()) == []
    assert [row["outcome"] for row in database()["audit"].rows] == ["INSUFFICIENT_MEMORY"]


async def test_learned_curves_survive_and_the_newest_counts(database):
    first = {("a", "cpu"): {"0": (1.0, 0.25, 3)}, ("b", "cpu"): {}}
    second = {("a", "cpu"): {"0": (1.0, 0.5, 4), "6": (8.5, 1.0, 1)}}
    async with storing(database()) as mailbox:
        await mailbox.ask(KeepCurves, curves=first)
        await mailbox.ask(KeepCurves, curves=second)

    kept = state_store.curves(database())
    assert kept == {("a", "cpu"): {"0": [1.0, 0.5, 4], "6": [8.5, 1.0, 1]}, ("b", "cpu"): {}}


async def test_a_commit_that_the_disk_refuses_is_told_and_the_next_one_works(database):
    db = database()
    async with storing(db) as mailbox:
        db.execute("pragma query_only=1")
        with pytest.raises(EngineError, match="refused a write"):
            await mailbox.ask(Intend, who="ann", action="pin", target="a")
        db.execute("pragma query_only=0")

        assert await mailbox.ask(Intend, who="ann", action="pin", target="a") == 1


async def test_an_empty_database_has_no_pins_and_no_curves(database):
    assert (state_store.pins(database()), state_store.curves(database())) == ([], {})
