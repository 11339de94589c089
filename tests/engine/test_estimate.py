"""An estimate costs nothing and comes true: the whole engine of simulated models, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from engine.errors import DeadlineExceeded, InputTooLong, InvalidInput, QueueFull, UnknownModel
from engine.requests import ExtractOptions, Task, Usage
from tests.simulation import catalog, engine, model, prompt, request

pytestmark = pytest.mark.anyio
SLOW = model("a/slow", options={"seconds_per_batch": 0.1, "seconds_per_cost": 0.01, "load_seconds": 3.0})


async def test_the_cost_is_that_of_the_jobs_and_nothing_is_loaded_or_run():
    async with engine(catalog(SLOW)) as opened:
        found = await opened.estimate(request("a/slow", "one two", "three"))
        (seen,) = opened.view().models

    assert found.costed.costs == (2, 1)
    assert (found.costed.cost_unit, found.costed.usage) == ("words", Usage(input_tokens=3))
    assert (found.outlook.cold, found.outlook.load, found.outlook.run) == (True, None, None)
    assert found.outlook.refusal is None
    assert (seen.state, seen.loads, seen.waiting) == ("available", 0, 0)


async def test_what_was_learned_is_foretold_when_it_is_warm_and_when_it_has_left():
    async with engine(catalog(SLOW)) as opened:
        for _ in range(3):
            await opened.submit(request("a/slow", "one two three four five"))
        warm = (await opened.estimate(request("a/slow", "one two three four five"))).outlook
        began = anyio.current_time()
        await opened.submit(request("a/slow", "one two three four five"))
        took = anyio.current_time() - began
        await opened.unload("a/slow")
        cold = (await opened.estimate(request("a/slow", "one"))).outlook

    assert (warm.cold, warm.load, warm.wait) == (False, 0.0, 0.0)
    assert warm.run == pytest.approx(took, rel=0.2)
    assert (cold.cold, cold.load) == (True, pytest.approx(3.0, rel=0.1))


async def test_a_queue_makes_it_wait_and_a_full_one_refuses_with_the_same_words():
    async with engine(catalog(SLOW), max_model_jobs=30, max_batch_cost=5) as opened:
        for _ in range(3):
            await opened.submit(request("a/slow", "one two three four five"))
        async with anyio.create_task_group() as group:
            group.start_soon(opened.submit, request("a/slow", *["one two three four five"] * 20))
            await anyio.sleep(0.01)
            waits = (await opened.estimate(request("a/slow", "one"))).outlook
            group.start_soon(opened.submit, request("a/slow", *["one two three four five"] * 20))
            await anyio.sleep(0.01)
            full = (await opened.estimate(request("a/slow", "one"))).outlook
            with pytest.raises(QueueFull) as refused:
                await opened.submit(request("a/slow", "one"))

    assert waits.refusal is None
    assert waits.wait == pytest.approx(19 * 0.15, rel=0.3)
    assert isinstance(full.refusal, QueueFull)
    assert full.refusal.message == refused.value.message


async def test_a_deadline_that_cannot_be_met_is_said():
    async with engine(catalog(SLOW)) as opened:
        late = replace(request("a/slow", "one"), deadline=anyio.current_time() - 1.0)
        found = await opened.estimate(late)

    assert isinstance(found.outlook.refusal, DeadlineExceeded)


async def test_what_the_request_would_fail_with_fails_the_estimate_and_frees_what_it_held():
    async with engine(catalog(SLOW, model("a/writer", tasks=("generate",)))) as opened:
        with pytest.raises(UnknownModel):
            await opened.estimate(request("a/slo", "one"))
        with pytest.raises(InvalidInput, match="cannot generate"):
            await opened.estimate(prompt("a/slow", "one", 3))
        with pytest.raises(InvalidInput, match="no tokenizer"):
            await opened.tokenize("a/slow", ("one",), True)
        found = await opened.estimate(prompt("a/writer", "one two", 3))
        held = opened.view().held_bytes

    assert found.costed.costs == (2,)
    assert held == 0


async def test_an_item_that_is_too_much_fails_the_estimate_where_it_would_fail_the_request():
    limited = model("a/limited", tasks=("encode", "extract"), limits={"max_item_cost": 2})
    async with engine(catalog(limited)) as opened:
        with pytest.raises(InputTooLong) as refused:
            await opened.estimate(request("a/limited", "one", "one two three"))
        asked = request("a/limited", "one", "one two three")
        found = await opened.estimate(replace(asked, task=Task.EXTRACT, options=ExtractOptions()))

    assert refused.value.item == 1
    assert found.costed.costs == (1, 0)
