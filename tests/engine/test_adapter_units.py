"""Adapters through a whole engine of simulated models: loaded on demand, evicted, shown, pinned, failed."""

from __future__ import annotations

import anyio
import pytest

from engine.errors import EngineError, InvalidInput, LoadFailed, NoRoom, StillLoading
from engine.orders import Action, Order
from engine.requests import EncodeOptions, GenerateOptions, Item, Request, Task
from tests.simulation import MIB, catalog, engine, model, request

pytestmark = pytest.mark.anyio

LORAS = {name: {"sources": [{"directory": "/"}]} for name in ("legal", "medical", "broken")}


def with_loras(task: str = "encode", **options):
    """`a`, of 100 MiB, each of whose adapters takes 30."""
    given = {"weights_bytes": 100 * MIB, "lora_bytes": 30 * MIB, "lora_error": "broken", **options}
    return model("a", options=given, loras=LORAS, tasks=(task,))


def asking(lora: str | None, *texts: str) -> Request:
    items = tuple(Item(text=text) for text in texts or ("x",))
    return Request("q", Task.ENCODE, "a", items, EncodeOptions(lora=lora))


def plain(name: str, mebibytes: int):
    return model(name, options={"weights_bytes": mebibytes * MIB, "load_seconds": 0.2})


def states(served, name: str = "a") -> dict[str, str]:
    (seen,) = [m for m in served.view().models if m.id == name]
    return {r.unit: r.state for r in seen.residencies}


def ledger(served) -> dict[str, int]:
    return {
        owner: size // MIB for line, owner, size in served.closely.ledger("simulated:a") if line == "weights"
    }


def changes(served) -> list[tuple[str, str]]:
    return [(change.event, change.unit) for change in served.closely.journal.changes]


async def test_an_adapter_is_loaded_when_it_is_asked_for_and_has_a_line_of_its_own():
    async with engine(catalog(with_loras())) as served:
        await served.submit(asking(None))
        before = ledger(served)
        await served.submit(asking("legal"))

        assert before == {"a": 100} and ledger(served) == {"a": 100, "a:legal": 30}
        assert states(served) == {"a": "ready", "a:legal": "ready"}
        assert served.view().models[0].state == "loaded"


async def test_who_waits_for_a_cold_adapter_holds_up_nobody_else():
    async with engine(catalog(with_loras(lora_seconds=3.0)), slots=2) as served:
        await served.submit(asking("legal"))
        ended: dict[str, float] = {}

        async def ask(lora: str | None) -> None:
            await served.submit(asking(lora))
            ended[str(lora)] = anyio.current_time()

        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for lora in ("medical", "legal", None):
                tasks.start_soon(ask, lora)

        assert ended["legal"] - began < 0.5 and ended["None"] - began < 0.5
        assert ended["medical"] - began == pytest.approx(3.0, abs=0.1)


async def test_jobs_of_several_adapters_share_a_batch():
    async with engine(catalog(with_loras(seconds_per_batch=0.1))) as served:
        for lora in ("legal", "medical"):
            await served.submit(asking(lora))
        answers: list[object] = []

        async def ask(lora: str | None) -> None:
            answers.append((await served.submit(asking(lora))).timing)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, None)
            await anyio.sleep(0.05)  # the slot is busy: the others meet in the queue
            for lora in ("legal", "medical", None, "legal"):
                tasks.start_soon(ask, lora)
        await anyio.sleep(0.1)
        last = served.closely.journal.batches[-1]

        assert last.jobs == 4 and last.unit == "a"


async def test_idle_adapters_make_room_before_their_base_does():
    async with engine(catalog(with_loras(), plain("b", 850)), memory=1000 * MIB) as served:
        for lora in ("legal", "medical"):
            await served.submit(asking(lora))
        await anyio.sleep(60)
        await served.submit(request("b", "x"))

        assert states(served) == {"a": "ready", "a:medical": "ready"}
        assert changes(served)[-2:] == [("evicted", "a:legal"), ("loaded", "b")]

        await served.submit(asking("legal"))
        assert states(served)["a:legal"] == "ready"


async def test_a_base_that_makes_room_takes_its_adapters_with_it():
    async with engine(catalog(with_loras(), plain("b", 950)), memory=1000 * MIB) as served:
        await served.submit(asking("legal"))
        await anyio.sleep(60)
        await served.submit(request("b", "x"))

        assert states(served) == {} and ledger(served) == {"b": 950}
        assert changes(served)[-3:] == [("evicted", "a:legal"), ("evicted", "a"), ("loaded", "b")]


async def test_an_adapter_that_does_not_load_fails_its_own_requests_with_why():
    async with engine(catalog(with_loras())) as served:
        outcomes: dict[str, object] = {}

        async def ask(lora: str) -> None:
            try:
                outcomes[lora] = await served.submit(asking(lora))
            except EngineError as error:
                outcomes[lora] = error

        async with anyio.create_task_group() as tasks:
            for lora in ("broken", "legal"):
                tasks.start_soon(ask, lora)
        (seen,) = served.view().models

        assert isinstance(outcomes["broken"], LoadFailed) and outcomes["broken"].retry_after
        assert not isinstance(outcomes["legal"], EngineError)
        assert (seen.state, seen.last_error) == ("loaded", None)
        assert states(served)["a:broken"] == "failed"


async def test_sequences_keep_their_adapter_until_they_end():
    entry = with_loras("generate", seconds_per_batch=0.1)
    async with engine(catalog(entry, plain("b", 850)), memory=1000 * MIB) as served:
        options = GenerateOptions(max_new_tokens=100, lora="legal")
        writing = Request("g", Task.GENERATE, "a", (Item(text="one two"),), options)
        held: list[dict[str, str]] = []

        async def other() -> None:
            await anyio.sleep(3)
            with anyio.move_on_after(3):
                await served.submit(request("b", "x"))
            held.append(states(served))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            answer = await served.submit(writing)

        assert held == [{"a": "ready", "a:legal": "ready"}]
        assert len(answer.outputs[0].text.split()) == 100


async def test_operators_load_pin_and_unload_an_adapter_by_its_name():
    async with engine(catalog(with_loras(), plain("b", 900)), memory=1000 * MIB) as served:
        await served.pin("a:legal")
        with pytest.raises(EngineError) as kept_out:
            await served.submit(request("b", "x"))
        with pytest.raises(InvalidInput, match="a:legal is pinned"):
            await served.unload("a")
        (base, adapter) = served.view().models[0].residencies

        assert kept_out.value.code == "INSUFFICIENT_MEMORY"
        assert (adapter.unit, adapter.pinned, base.pinned) == ("a:legal", True, False)
        assert base.why == "an adapter of it is pinned"

        await served.unpin("a:legal")
        await served.unload("a:legal")
        assert states(served) == {"a": "ready"}
        await served.load("a:medical")
        assert states(served) == {"a": "ready", "a:medical": "ready"}


async def test_what_is_done_to_whole_models_is_refused_for_an_adapter():
    async with engine(catalog(with_loras())) as served:
        with pytest.raises(InvalidInput, match="as a whole"):
            await served.operators.operate(Order(Action.PAUSE, "a:legal"))


async def test_a_new_version_of_the_base_takes_the_pins_of_its_adapters():
    async with engine(catalog(with_loras()), memory=1000 * MIB) as served:
        await served.pin("a:legal")
        await served.operators.operate(Order(Action.RELOAD, "a"))
        await anyio.sleep(5)

        assert states(served) == {"a#2": "ready", "a#2:legal": "ready"}
        assert ledger(served) == {"a#2": 100, "a#2:legal": 30}
        await served.submit(asking("legal"))


async def test_a_model_that_is_drained_takes_its_adapters_with_it():
    async with engine(catalog(with_loras())) as served:
        await served.submit(asking("legal"))
        await served.operators.operate(Order(Action.DRAIN, "a"))

        assert ledger(served) == {}


async def test_who_waits_too_long_for_a_cold_adapter_is_told_that_it_loads():
    async with engine(catalog(with_loras(lora_seconds=9.0)), max_hold=3.0) as served:
        await served.submit(asking(None))
        began = anyio.current_time()
        with pytest.raises(StillLoading):
            await served.submit(asking("legal"))
        assert anyio.current_time() - began == pytest.approx(3.0)

        await anyio.sleep(10)
        assert (await served.submit(asking("legal"))).timing.load == 0


async def test_a_wait_for_a_cold_adapter_is_told_as_loading_before_and_after():
    async with engine(catalog(with_loras(lora_seconds=3.0))) as served:
        await served.submit(asking(None))
        answer = await served.submit(asking("legal"))
        warm = (await served.estimate(asking("legal"))).outlook
        await served.unload("a:legal")
        cold = (await served.estimate(asking("legal"))).outlook
        plain_one = (await served.estimate(asking(None))).outlook

    assert answer.cold and answer.timing.load == pytest.approx(3.0, abs=0.1)
    assert (cold.cold, cold.load) == (True, pytest.approx(3.0, abs=0.1))
    assert (warm.cold, warm.load, plain_one.cold) == (False, 0.0, False)


async def test_the_settings_may_pin_an_adapter_and_it_is_there_when_the_engine_begins():
    async with engine(catalog(with_loras()), pins=("a:legal",)) as served:
        assert states(served) == {"a": "ready", "a:legal": "ready"}
        assert served.view().models[0].residencies[1].pinned


async def test_an_estimate_of_a_cold_adapter_over_a_warm_base_says_so_and_how_long_it_loads():
    async with engine(catalog(with_loras(lora_seconds=3.0))) as served:
        await served.submit(asking(None))
        never = (await served.estimate(asking("legal"))).outlook
        await served.submit(asking("legal"))
        warm = (await served.estimate(asking("legal"))).outlook
        await served.unload("a:legal")
        cold = (await served.estimate(asking("legal"))).outlook
        base = (await served.estimate(asking(None))).outlook
        came = await served.submit(asking("legal"))

    assert (never.cold, never.load) == (True, None)
    assert (warm.cold, warm.load, base.cold) == (False, 0.0, False)
    assert (cold.cold, came.cold) == (True, True)
    assert cold.load == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize("warm", [False, True])
async def test_an_adapter_that_can_never_fit_is_refused_by_its_estimate_in_the_words_of_its_call(warm):
    async with engine(catalog(with_loras(lora_bytes=90 * MIB)), memory=170 * MIB) as served:
        assert isinstance(await served.sizes.refusal("a:legal"), NoRoom)  # before anything is known of `a`
        if warm:
            await served.submit(asking(None))
        found = (await served.estimate(asking("legal"))).outlook
        base = (await served.estimate(asking(None))).outlook
        with pytest.raises(NoRoom) as refused:
            await served.submit(asking("legal"))

    assert base.refusal is None and isinstance(found.refusal, NoRoom)
    assert found.refusal.message == refused.value.message
    assert "a:legal takes 90 MiB" in refused.value.message and "100 MiB of a" in refused.value.message
