"""What operators have done: pauses, drains, acts on what somebody else has changed meanwhile."""

from __future__ import annotations

import anyio
import pytest

from engine import boxes
from engine.errors import (
    DeadlineExceeded,
    EngineError,
    InvalidInput,
    Paused,
    QueueFull,
    StateChanged,
    StillBusy,
    UnknownModel,
)
from engine.orders import Action, Order
from tests.simulation import MIB, catalog, engine, model, request

pytestmark = pytest.mark.anyio

SLOW = {"seconds_per_batch": 5.0, "load_seconds": 1.0}


async def order(opened, action: str, name: str = "a", **fields):
    return await opened.operators.operate(Order(Action(action), name, **fields))


@pytest.fixture
def models():
    return catalog(model("a", options=SLOW, profiles={"p": {}}), model("b"))


async def test_a_paused_model_takes_nothing_new_and_ends_what_it_has(models):
    async with engine(models) as opened:
        await opened.load("a")
        answers = []

        async def ask():
            answers.append(await opened.submit(request("a", "x")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(0.1)
            await order(opened, "pause", "a:p")
            with pytest.raises(Paused) as refused:
                await opened.submit(request("a", "y"))
            assert (await opened.submit(request("b", "y"))).outputs
            shown = {m.id: m.paused for m in opened.view().models}
        await order(opened, "resume")
        again = await opened.submit(request("a", "y"))

    assert refused.value.code == "MODEL_PAUSED" and refused.value.retry_after
    assert shown == {"a": True, "b": False}
    assert len(answers) == 1 and again.outputs


async def test_all_intake_is_paused_and_resumed_without_touching_what_was_paused_before(models):
    async with engine(models) as opened:
        await order(opened, "pause", "b")
        await order(opened, "pause", "*")
        for name in "ab":
            with pytest.raises(Paused):
                await opened.submit(request(name, "x"))
        await order(opened, "resume", "*")
        with pytest.raises(Paused):
            await opened.submit(request("b", "x"))
        assert (await opened.submit(request("a", "x"))).outputs


async def test_a_drain_waits_for_what_is_open_and_then_unloads(models):
    async with engine(models) as opened:
        await opened.load("a")
        ended = []

        async def ask():
            await opened.submit(request("a", "x"))
            ended.append("answer")

        async def drain():
            await order(opened, "drain")
            ended.append("drain")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(0.1)
            tasks.start_soon(drain)
            await anyio.sleep(0.1)
            with pytest.raises(Paused):
                await opened.submit(request("a", "y"))
        view = opened.view().models[0]

    assert ended == ["answer", "drain"]
    assert view.residencies == () and view.paused


async def test_a_drain_that_takes_too_long_says_what_is_left_and_leaves_the_model_paused(models):
    async with engine(models, drain_limit=2.0) as opened:
        await opened.load("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.submit, request("a", "x"))
            await anyio.sleep(0.1)
            began = anyio.current_time()
            with pytest.raises(StillBusy) as busy:
                await order(opened, "drain")
            took = anyio.current_time() - began
        view = opened.view().models[0]

    assert took == pytest.approx(2.0)
    assert busy.value.details["left"] == {"preparing": 0, "waiting": 0, "running": 1}
    assert view.paused and view.state == "loaded"


async def test_what_is_pinned_is_neither_drained_nor_unloaded(models):
    async with engine(models) as opened:
        await opened.pin("a")
        for action in ("drain", "unload"):
            with pytest.raises(InvalidInput, match="unpin it first"):
                await order(opened, action)
        assert not opened.view().models[0].paused
        assert (await opened.submit(request("a", "x"))).outputs


async def test_an_act_on_what_has_changed_since_is_refused_with_what_changed(models):
    async with engine(models) as opened:
        seen = opened.operators.version("a")
        await order(opened, "pin", who="ann", reason="demo", if_version=seen)
        with pytest.raises(StateChanged) as refused:
            await order(opened, "unpin", who="bob", if_version=seen)
        await order(opened, "load", "b", if_version=opened.operators.version("b"))
        done = await order(opened, "unpin", if_version=refused.value.details["version"])

    assert refused.value.details["changes"] == [{"who": "ann", "action": "pin", "reason": "demo"}]
    assert "pin by ann" in refused.value.message
    assert done.version > refused.value.details["version"]


async def test_of_two_who_act_on_the_same_version_one_is_refused(models):
    async with engine(models) as opened:
        seen, ended = opened.operators.version("a"), []

        async def act(action):
            try:
                await order(opened, action, if_version=seen)
                ended.append("done")
            except StateChanged:
                ended.append("refused")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(act, "load")
            tasks.start_soon(act, "pin")

    assert sorted(ended) == ["done", "refused"]


async def test_an_unknown_model_is_unknown_to_operators_too(models):
    async with engine(models) as opened:
        with pytest.raises(UnknownModel):
            await order(opened, "drain", "nobody")


async def test_a_model_that_follows_another_in_sessions_is_loaded_ahead():
    options = {"weights_bytes": 100 * MIB, "load_seconds": 0.5, "seconds_per_batch": 0.6}
    models = catalog(model("encode", options=options), model("score", options=options))
    async with engine(models) as opened:
        cold = []
        for session in range(5):
            await opened.submit(request("encode", "x", session=f"s{session}"))
            await anyio.sleep(0.1)
            cold.append((await opened.submit(request("score", "x", session=f"s{session}"))).cold)
            await opened.unload("score")
            await anyio.sleep(40)

    assert cold == [True, True, True, False, False]


async def test_one_without_a_session_expects_nothing():
    models = catalog(model("encode"), model("score"))
    async with engine(models) as opened:
        for _ in range(6):
            await opened.submit(request("encode", "x"))
            await opened.submit(request("score", "x"))
            await opened.unload("score")
        await opened.submit(request("encode", "x"))
        await anyio.sleep(2)
        states = {m.id: m.state for m in opened.view().models}

    assert states == {"encode": "loaded", "score": "available"}


async def test_a_deadline_that_has_passed_is_told_as_that_and_one_that_cannot_be_met_as_no_room():
    options = {"seconds_per_batch": 1.0, "load_seconds": 0.0}
    async with engine(catalog(model("a", options=options, limits={"max_batch_jobs": 1}))) as opened:
        for _ in range(3):
            await opened.submit(request("a", "x"))  # it knows now what one takes

        outcomes = []

        async def ask(seconds):
            try:
                await opened.submit(request("a", "x", deadline=anyio.current_time() + seconds))
            except EngineError as error:
                outcomes.append(type(error))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(opened.submit, request("a", "x"))
            await anyio.sleep(0.1)
            await ask(0.0)
            await ask(0.002)
        assert outcomes == [DeadlineExceeded, QueueFull]


async def test_a_profile_may_answer_for_its_model_when_that_has_no_room():
    options = {"seconds_per_batch": 1.0, "load_seconds": 0.0}
    small = model("small", options=options, profiles={"quick": {"limits": {"max_batch_jobs": 4}}})
    models = catalog(model("a", options=options, degrade="small:quick"), small)
    async with engine(models, max_model_jobs=1) as opened:
        answers = []

        async def ask():
            answers.append(await opened.submit(request("a", "x")))

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(ask)

    assert {(a.model, a.degraded_from) for a in answers} == {("a", None), ("small", "a")}


async def test_a_full_mailbox_is_no_reason_when_the_time_is_over(models, monkeypatch):
    monkeypatch.setattr(boxes, "ASKS", 0)
    async with engine(models) as opened:
        now = anyio.current_time()
        with pytest.raises(DeadlineExceeded):
            await opened.submit(request("b", "x", deadline=now))
        with pytest.raises(QueueFull):
            await opened.submit(request("b", "x", deadline=now + 1))
