"""What must survive: a commit is on disk when it is answered."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest

from engine.actors import state_store
from engine.actors.actor import Mailbox
from engine.actors.state_messages import Conclude, History, Intend, KeepCurves, KeepWorkspaces
from engine.actors.state_store import StateStore
from engine.errors import EngineError, StorageFull
from engine.wishes import Closed, Opened, Pinned, Unpinned
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
        await mailbox.ask(Conclude, intent=intent, who="ann", outcome="ok", kept=Pinned("a"))
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
            await mailbox.ask(Conclude, intent=intent, who="ann", outcome="ok", kept=Pinned(unit))
        intent = await mailbox.ask(Intend, who="ann", action="unpin", target="a")
        await mailbox.ask(Conclude, intent=intent, who="ann", outcome="ok", kept=Unpinned("a"))

    assert state_store.pins(database()) == [Pinned("b"), Pinned("c")]


async def test_a_pin_that_failed_is_no_pin(database):
    async with storing(database()) as mailbox:
        intent = await mailbox.ask(Intend, who="ann", action="pin", target="a")
        await mailbox.ask(Conclude, intent=intent, who="ann", outcome="INSUFFICIENT_MEMORY")

    assert state_store.pins(database()) == []
    assert [row["outcome"] for row in database()["audit"].rows] == ["INSUFFICIENT_MEMORY"]


async def test_a_pin_keeps_its_place_and_what_is_pinned_again_the_newest(database):
    async with storing(database()) as mailbox:
        for pin in (Pinned("a", "cpu", 2), Pinned("b"), Pinned("a", None, 3)):
            intent = await mailbox.ask(Intend, who="ann", action="pin", target=pin.unit)
            await mailbox.ask(Conclude, intent=intent, who="ann", outcome="ok", kept=pin)

    assert state_store.pins(database()) == [Pinned("b"), Pinned("a", None, 3)]


async def test_pauses_survive_until_they_are_over(database):
    async with storing(database()) as mailbox:
        for kept in (Closed("a"), Closed("*"), Closed("b"), Opened("a"), Opened("never")):
            intent = await mailbox.ask(Intend, who="ann", action="pause", target="x")
            await mailbox.ask(Conclude, intent=intent, who="ann", outcome="ok", kept=kept)

    assert state_store.paused(database()) == {"*", "b"}


async def test_the_history_of_a_model_is_its_own_and_the_newest_comes_first(database):
    async with storing(database()) as mailbox:
        for target in ("a", "b", "a@float16", "ab", "a"):
            before = f"before {target}"
            intent = await mailbox.ask(Intend, who="ann", action="load", target=target, before=before)
            await mailbox.ask(Conclude, intent=intent, who="ann", outcome="ok", after="loaded")
        await mailbox.ask(Intend, who="bob", action="load", target="b")
        mine = await mailbox.ask(History, limit=10, target="a")
        newest = await mailbox.ask(History, limit=2)

    assert [(row.id, row.target) for row in mine] == [(5, "a"), (3, "a@float16"), (1, "a")]
    assert (mine[1].before, mine[1].after, mine[1].outcome) == ("before a@float16", "loaded", "ok")
    assert [(row.id, row.outcome) for row in newest] == [(6, None), (5, "ok")]
    assert state_store.last_action(database()) == 6


async def test_a_database_of_before_gets_its_new_columns_and_keeps_its_pins(database):
    old = database()
    state_store.migrations.apply(old, stop_before="places_pauses_and_workspaces")
    old["pins"].insert({"unit": "a", "since": 1.0, "who": "ann"})
    old["audit"].insert({"recorded_at": 1.0, "who": "ann", "action": "pin", "target": "a", "reason": ""})
    state_store.check(old)

    assert state_store.pins(database()) == [Pinned("a")]
    async with storing(database()) as mailbox:
        (row,) = await mailbox.ask(History, limit=10)
    assert (row.before, row.after, row.outcome) == ("", "", None)


async def test_a_write_waits_for_another_process_instead_of_failing(database):
    other = database().conn
    async with storing(database()) as mailbox:
        other.execute("begin immediate")
        async with anyio.create_task_group() as tasks:

            async def let_go():
                await anyio.sleep(0.1)
                other.rollback()

            tasks.start_soon(let_go)
            intent = await mailbox.ask(Intend, who="ann", action="pin", target="a")

    assert intent == 1


async def test_learned_workspaces_survive(database):
    seen = {("a", "cpu"): {"points": [[1, 2]], "cap": 7}}
    async with storing(database()) as mailbox:
        await mailbox.ask(KeepWorkspaces, workspaces=seen)

    assert state_store.workspaces(database()) == seen


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


async def test_a_full_disk_is_told_as_such(database):
    db = database()
    async with storing(db) as mailbox:
        db.execute(f"pragma max_page_count={db.execute('pragma page_count').fetchone()[0]}")
        with pytest.raises(StorageFull, match="nothing was changed"):
            await mailbox.ask(Intend, who="ann", action="pin", target="a" * 100_000)


async def test_an_empty_database_has_no_pins_and_no_curves(database):
    assert (state_store.pins(database()), state_store.curves(database())) == ([], {})
