"""The whole engine in virtual time, on both event loops: who is answered, when, and what is left behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import anyio
import numpy as np
import pytest

from engine.errors import (
    DeadlineExceeded,
    EngineError,
    InferenceFailed,
    InputTooLong,
    InvalidInput,
    LoadFailed,
    NoRoom,
    QueueFull,
    StillLoading,
    UnknownModel,
)
from engine.requests import ExtractOptions, Task
from tests.simulation import MIB, catalog, engine, model, prompt, request

pytestmark = pytest.mark.anyio


def expected(text: str) -> np.ndarray:
    from engine.adapters.simulated import Declared, SimulatedModel

    return SimulatedModel(Declared(), 8)._answer(Task.ENCODE, text, 0).dense


async def gather(*calls):
    results = [None] * len(calls)

    async def call(place, awaitable):
        try:
            results[place] = await awaitable
        except EngineError as error:
            results[place] = error

    async with anyio.create_task_group() as tasks:
        for place, awaitable in enumerate(calls):
            tasks.start_soon(call, place, awaitable)
    return results


async def test_an_answer_is_for_its_own_text_and_in_order():
    async with engine(catalog(model("a"))) as served:
        response = await served.submit(request("a", "one", "two", "three"))

    for output, text in zip(response.outputs, ["one", "two", "three"], strict=True):
        assert np.array_equal(output.dense, expected(text))
    assert response.cold and response.timing.load == pytest.approx(0.5)


async def test_a_cold_model_is_loaded_once_however_many_ask():
    async with engine(catalog(model("a"))) as served:
        answers = await gather(*[served.submit(request("a", f"t{n}")) for n in range(100)])
        (seen,) = served.view().models

    assert seen.loads == 1
    assert not [a for a in answers if isinstance(a, EngineError)]


async def test_a_failed_load_fails_all_waiters_alike_and_is_tried_again_after_its_cool_down():
    async with engine(catalog(model("a", options={"load_error": "no such weights"}))) as served:
        answers = await gather(*[served.submit(request("a", f"t{n}")) for n in range(100)])
        before = served.view().models[0]
        with pytest.raises(LoadFailed) as soon:
            await served.submit(request("a", "too soon"))
        await anyio.sleep(11)
        with pytest.raises(LoadFailed):
            await served.submit(request("a", "again"))
        after = served.view().models[0]

    assert Counter((type(a), str(a)) for a in answers) == {(LoadFailed, str(answers[0])): 100}
    assert before.last_error["attempts"] == 1 and after.last_error["attempts"] == 2
    assert 0 < soon.value.retry_after <= 10


async def test_two_models_that_fit_only_one_at_a_time_take_turns():
    models = [model(name, options={"weights_bytes": 600 * MIB, "load_seconds": 0.2}) for name in "ab"]
    async with engine(catalog(*models), memory=1000 * MIB) as served:
        for turn in range(200):
            await served.submit(request("ab"[turn % 2], "x"))
        await anyio.sleep(10)
        view = served.view()

    assert view.devices[0].lines["weights"] == 600 * MIB
    assert view.devices[0].used_bytes == 600 * MIB
    assert sum(m.loads for m in view.models) == 200
    assert sum(m.evictions for m in view.models) == 199


async def test_saturated_models_that_do_not_fit_together_both_get_on():
    options = {"weights_bytes": 600 * MIB, "load_seconds": 0.2, "seconds_per_batch": 0.05}
    models = [model(name, options=options) for name in "ab"]
    async with engine(catalog(*models), memory=1000 * MIB) as served:
        done = Counter()

        async def client(name):
            while anyio.current_time() < 60:
                await served.submit(request(name, "x y z"))
                done[name] += 1

        async with anyio.create_task_group() as tasks:
            for name in "aaaabbbb":
                tasks.start_soon(client, name)
        loads = sum(m.loads for m in served.view().models)

    assert min(done.values()) > 0.3 * sum(done.values())
    assert loads < 60  # a change of places at most every second


async def test_clients_that_hang_up_leave_no_work_behind():
    async with engine(
        catalog(model("a", options={"seconds_per_batch": 1.0}, limits={"max_batch_jobs": 1}))
    ) as s:
        await s.submit(request("a", "warm"))
        async with anyio.create_task_group() as clients:
            for n in range(500):
                clients.start_soon(s.submit, request("a", f"t{n}"))
            await anyio.sleep(0.5)
            clients.cancel_scope.cancel()
        await anyio.sleep(5)
        metrics = s.metrics().decode()
        view = s.view()

    ran = float(metrics.split('serai_batch_jobs_total{unit="a"} ')[1].split()[0])
    assert ran <= 3  # the warm one, the one in flight, and at most one more
    assert view.models[0].waiting == 0 and view.held_bytes == 0
    assert view.totals["CANCELLED"] == 500


async def test_a_load_without_end_holds_nothing_of_those_who_gave_it_up():
    stalled = model("a", options={"load_seconds": 1e6})
    async with engine(catalog(stalled, model("b")), max_hold=10.0) as served:
        async with anyio.create_task_group() as left:
            left.start_soon(served.submit, request("a", "gone"))
            await anyio.sleep(1)
            left.cancel_scope.cancel()
        answers = await gather(*(served.submit(request("a", "x", "y", id=f"{n}")) for n in range(3)))
        await anyio.sleep(10)
        idle = served.view()
        await served.submit(request("b", "x"))
        again = await gather(served.submit(request("a", "x")))

    assert [type(answer) for answer in [*answers, *again]] == [StillLoading] * 4
    assert idle.models[0].waiting == 0 and idle.held_bytes == 0
    assert idle.totals["MODEL_LOADING"] == 3 and idle.totals["CANCELLED"] == 1


async def test_a_job_past_its_deadline_is_not_run():
    slow = model("a", options={"seconds_per_batch": 10.0}, limits={"max_batch_jobs": 1})
    async with engine(catalog(slow)) as served:
        outcomes = []

        async def late():
            await anyio.sleep(1)
            try:
                await served.submit(request("a", "late", deadline=anyio.current_time() + 3))
            except EngineError as error:
                outcomes.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(late)
            await served.submit(request("a", "first"))
        await anyio.sleep(60)
        totals = served.view().totals

    assert [type(error) for error in outcomes] == [DeadlineExceeded]
    assert totals == {"ok": 1, "DEADLINE_EXCEEDED": 1}


async def test_a_deadline_that_has_passed_is_counted_as_one():
    async with engine(catalog(model("a"))) as served:
        await anyio.sleep(5)
        with pytest.raises(DeadlineExceeded):
            await served.submit(request("a", "late", deadline=1.0))
        await anyio.sleep(1)
        totals = served.view().totals

    assert totals == {"DEADLINE_EXCEEDED": 1}


async def test_one_bad_input_fails_alone():
    poisoned = model("a", options={"poison": "boom"})
    async with engine(catalog(poisoned)) as served:
        await served.submit(request("a", "warm"))
        answers = await gather(
            *[served.submit(request("a", "boom" if n == 7 else f"t{n}")) for n in range(20)],
            served.submit(request("a", "fine", "boom", "fine too")),
        )

    assert isinstance(answers[7], InferenceFailed) and answers[7].item == 0
    assert isinstance(answers[20], InferenceFailed) and answers[20].item == 1
    assert sum(isinstance(a, EngineError) for a in answers) == 2


async def test_an_item_beyond_its_bounds_fails_alone_on_extract_and_names_itself_elsewhere():
    bounded = model("a", ("encode", "extract"), limits={"max_item_bytes": 100, "max_item_cost": 5})
    async with engine(catalog(bounded)) as served:
        texts = ["fine", "x" * 101, "one two three four five six", "fine too"]
        extract = replace(request("a", *texts), task=Task.EXTRACT, options=ExtractOptions())
        found = (await served.submit(extract)).outputs
        with pytest.raises(InputTooLong, match="max_item_bytes") as refused:
            await served.submit(request("a", *texts))
        with pytest.raises(InputTooLong, match="max_item_cost"):
            await served.submit(request("a", texts[2]))

    assert [getattr(output, "code", "ok") for output in found] == ["ok", *["INPUT_TOO_LONG"] * 2, "ok"]
    assert [output.data["echo"] for output in (found[0], found[3])] == ["fine", "fine too"]
    assert refused.value.item == 1


async def test_bad_requests_are_refused_with_what_to_do():
    async with engine(catalog(model("org/alpha"))) as served:
        with pytest.raises(UnknownModel, match="Did you mean 'org/alpha'"):
            await served.submit(request("org/alhpa", "x"))
        with pytest.raises(InvalidInput, match="it can: encode"):
            await served.submit(prompt("org/alpha", "x", 3))
        with pytest.raises(InvalidInput, match="items is empty"):
            await served.submit(request("org/alpha"))


async def test_a_full_queue_says_when_to_come_back():
    slow = model("a", options={"seconds_per_batch": 1.0}, limits={"max_batch_jobs": 1})
    async with engine(catalog(slow), max_model_jobs=5) as served:
        await served.submit(request("a", "warm"))
        answers = await gather(*[served.submit(request("a", f"t{n}")) for n in range(20)])

    refused = [a for a in answers if isinstance(a, QueueFull)]
    assert 5 <= 20 - len(refused) <= 6  # one may have left the queue before the others came
    assert all(0 < r.retry_after <= 30 for r in refused)


async def test_a_model_without_room_lets_another_answer_where_it_names_one():
    slow = {"options": {"seconds_per_batch": 1.0}, "limits": {"max_batch_jobs": 1}}
    models = catalog(model("large", degrade="small", **slow), model("small"))
    async with engine(models, max_model_jobs=5) as served:
        await served.submit(request("large", "warm"))
        answers = await gather(*[served.submit(request("large", f"t{n}")) for n in range(9)])
        view = served.view()

    elsewhere = [a for a in answers if a.degraded_from]
    assert {(a.model, a.degraded_from) for a in elsewhere} == {("small", "large")}
    assert view.totals == {"ok": 10 - len(elsewhere), "degraded": len(elsewhere)}
    assert 3 <= len(elsewhere) <= 4 and view.held_bytes == 0


async def test_a_request_larger_than_the_limit_is_served():
    async with engine(catalog(model("a")), max_model_jobs=100) as served:
        response = await served.submit(request("a", *[f"t{n}" for n in range(1000)]))

    assert len(response.outputs) == 1000


async def test_what_can_never_fit_is_refused_with_the_arithmetic():
    big = model("big", options={"weights_bytes": 5000 * MIB})
    async with engine(catalog(big), memory=1000 * MIB) as served:
        with pytest.raises(NoRoom, match="5000 MiB of weights"):
            await served.submit(request("big", "x"))


async def test_an_answer_that_can_never_fit_is_refused_with_what_to_lower():
    async with engine(catalog(model("g", ("generate",), outputs=())), memory=112 * MIB) as served:
        with pytest.raises(InputTooLong, match="lower max_new_tokens"):
            await served.submit(prompt("g", "tick", 100_000))
        assert (await served.submit(prompt("g", "tick", 3))).outputs[0].text == "tick tick tick "


async def test_generation_streams_and_others_run_between_its_quanta():
    models = catalog(model("g", ("generate",), outputs=()), model("e"))
    async with engine(models) as served:
        await served.submit(request("e", "warm"))
        pieces, whole, others = [], None, []

        async def read():
            nonlocal whole
            async for delta in served.stream(prompt("g", "tick tock", 50)):
                pieces.append(delta.text)
                whole = delta.done

        async def encode():
            await anyio.sleep(0.52)
            for _ in range(5):
                await served.submit(request("e", "x"))
                others.append(len(pieces))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(encode)
        lines = served.view().devices[0].lines

    assert whole.outputs[0].text == "".join(pieces) == "tick tock " * 25
    assert whole.usage.output_tokens == 50
    assert others[0] < others[-1] < 50
    assert lines["kv"] == 0 and lines["workspace"] == 0


async def test_a_reader_who_leaves_frees_the_sequence():
    async with engine(catalog(model("g", ("generate",), outputs=()))) as served:
        stream = served.stream(prompt("g", "tick", 10_000))
        async for _ in stream:
            break
        await stream.aclose()
        await anyio.sleep(1)
        view = served.view()

    assert view.devices[0].lines["kv"] == 0
    assert view.models[0].in_flight == 0 and view.held_bytes == 0


async def test_what_outlasts_the_drain_is_told_to_come_back():
    async with engine(catalog(model("a", options={"seconds_per_batch": 60.0}))) as served:
        told = []

        async def ask():
            try:
                await served.submit(request("a", "x"))
            except EngineError as error:
                told.append((error.code, error.retry_after))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(1)
            assert not await served.drain(5)

    assert told == [("QUEUE_FULL", 1.0)]


async def test_a_stream_ends_with_the_engine():
    told = []
    async with anyio.create_task_group() as tasks:
        async with engine(catalog(model("g", ("generate",), outputs=()))) as served:

            async def read():
                try:
                    async for _ in served.stream(prompt("g", "tick", 10_000)):
                        pass
                except EngineError as error:
                    told.append(error.code)

            tasks.start_soon(read)
            await anyio.sleep(1)

    assert told == ["QUEUE_FULL"]


async def test_an_operator_is_answered_where_nothing_is_kept():
    async with engine(catalog(model("a"))) as served:
        await served.load("a")
        assert await served.pin("a") == ()
        await served.unpin("a")
        await served.unload("a")
        view = served.view()

    assert view.models[0].state == "available" and view.devices[0].used_bytes == 0


async def test_draining_finishes_what_is_in_flight_and_takes_nothing_new():
    async with engine(catalog(model("a", options={"seconds_per_batch": 5.0}))) as served:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(served.submit, request("a", "x"))
            await anyio.sleep(1)
            assert await served.drain(30)
            with pytest.raises(EngineError) as refused:
                await served.submit(request("a", "y"))

    assert refused.value.code == "QUEUE_FULL" and refused.value.retry_after
