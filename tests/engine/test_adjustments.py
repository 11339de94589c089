"""Limits, class and share that operators change while a model is served."""

from __future__ import annotations

import anyio
import pytest

from engine.errors import InvalidInput, StateChanged, UnknownModel
from engine.orders import Action, Order
from tests.engine.test_changeover import entry, served, units, write
from tests.engine.test_persistence import opened as durable
from tests.engine.test_persistence import rows
from tests.simulation import MIB, catalog, engine, model, request

pytestmark = pytest.mark.anyio

REAL_CLOCK = pytest.mark.parametrize("anyio_backend", [("asyncio", {})], ids=["real"])


async def adjust(opened, name: str = "a", if_version: int | None = None, **changes):
    order = Order(Action.ADJUST, name, "user:ann", "because", if_version=if_version, changes=changes)
    return await opened.operators.operate(order)


def facts(opened, unit: str = "a"):
    return opened.closely.unit(unit)


async def largest_batch(opened, name: str = "a") -> int:
    """Of twelve requests that come at once while another runs."""
    async with anyio.create_task_group() as tasks:
        for n in range(12):
            tasks.start_soon(opened.submit, request(name, "x", id=str(n)))
    return max(batch.jobs for batch in opened.closely.journal.batches if batch.unit == name.partition(":")[0])


async def test_an_adjusted_limit_bounds_the_next_batches_and_is_taken_back():
    async with engine(catalog(model("a"))) as opened:
        await opened.load("a")
        await adjust(opened, max_batch_jobs=2)
        small = await largest_batch(opened)
        await adjust(opened, max_batch_jobs=None)
        again = await largest_batch(opened)

    assert small == 2
    assert again > 2


async def test_a_share_and_a_class_are_in_force_at_once_without_a_load():
    async with engine(catalog(model("a"))) as opened:
        await opened.load("a")
        await adjust(opened, weight=3.0, service_class="interactive", max_slots=1)
        spec = opened.catalog.models["a"]
        loads = opened.view().models[0].loads

        assert (spec.weight, spec.service_class, spec.limits.max_slots) == (3.0, "interactive", 1)
        assert facts(opened).weight == 3.0
        assert loads == 1
        assert opened.operators.adjusted("a") == {
            "max_slots": 1,
            "weight": 3.0,
            "service_class": "interactive",
        }


async def test_a_profiles_limits_are_its_own_and_a_share_is_the_whole_models():
    models = catalog(model("a", limits={"max_item_cost": 9}, profiles={"p": {}}))
    async with engine(models) as opened:
        await adjust(opened, "a:p", max_batch_jobs=1)
        spec = opened.catalog.models["a"]
        with pytest.raises(InvalidInput, match="whole model"):
            await adjust(opened, "a:p", weight=2.0)

    assert spec.limits.max_batch_jobs is None
    assert (spec.profiled("p").limits.max_batch_jobs, spec.profiled("p").limits.max_item_cost) == (1, 9)


@pytest.mark.parametrize(
    "changes",
    [{}, {"max_slots": 0}, {"weight": "heavy"}, {"service_class": "royal"}, {"dtype": "float16"}],
)
async def test_what_cannot_be_adjusted_is_refused_before_anything_is_done(changes):
    async with engine(catalog(model("a"))) as opened:
        before = opened.operators.version("a")
        with pytest.raises(InvalidInput):
            await adjust(opened, **changes)
        with pytest.raises(UnknownModel):
            await adjust(opened, "nobody", weight=1.0)

        assert opened.operators.version("a") == before
        assert not opened.operators.adjusted("a")


async def test_who_based_it_on_an_older_version_is_refused():
    async with engine(catalog(model("a"))) as opened:
        version = opened.operators.version("a")
        await adjust(opened, weight=2.0)
        with pytest.raises(StateChanged, match="adjust by user:ann"):
            await adjust(opened, if_version=version, weight=5.0)

        assert opened.catalog.models["a"].weight == 2.0


async def test_a_model_that_generates_is_loaded_anew_with_its_new_limits():
    models = catalog(model("a", tasks=("generate",), outputs=(), dims={}))
    async with engine(models) as opened:
        await opened.load("a")
        await adjust(opened, max_running=3)
        await anyio.sleep(60)
        there = {r.unit for m in opened.view().models for r in m.residencies if r.weights_bytes}

        assert there == {"a#2"}
        assert opened.catalog.models["a"].limits.max_running == 3


async def test_a_new_version_that_cannot_be_loaded_adjusts_nothing():
    models = catalog(
        model("a", tasks=("generate",), outputs=(), dims={}, options={"weights_bytes": 100 * MIB})
    )
    async with engine(models, drain_limit=1.0) as opened:
        await opened.pin("a")
        before = opened.catalog.models["a"]
        broken = before.model_copy(update={"options": {**before.options, "load_error": "no such weights"}})
        opened.operators._adjustments.entries = catalog(broken)
        with pytest.raises(Exception, match="no such weights"):
            await adjust(opened, max_running=3)

        assert opened.catalog.models["a"].limits == before.limits
        assert not opened.operators.adjusted("a")


async def test_it_stays_when_the_entry_changes_and_gives_way_to_the_new_entry_when_taken_back(tmp_path):
    async with served(tmp_path, entry("a", weight=1.0)) as opened:
        await adjust(opened, weight=4.0)
        write(tmp_path, entry("a", weight=2.0, description="new"), entry("b"))
        done = await opened.operators.reload_catalog()
        kept = opened.catalog.models["a"]
        await adjust(opened, weight=None)

        assert (done.added, done.revised) == (("b",), ("a",))
        assert (kept.weight, kept.description) == (4.0, "new")
        assert opened.catalog.models["a"].weight == 2.0
        assert units(opened) == {}


@REAL_CLOCK
async def test_it_outlasts_the_server_and_the_audit_has_before_and_after(tmp_path):
    async with durable(tmp_path) as opened:
        await adjust(opened, max_batch_jobs=2, weight=3.0)
        await adjust(opened, "b", max_slots=1)
        await adjust(opened, "b", max_slots=None)
    async with durable(tmp_path) as opened:
        spec = opened.catalog.models["a"]
        (act,) = await opened.operators.history(10, "a")

        assert (spec.limits.max_batch_jobs, spec.weight) == (2, 3.0)
        assert opened.catalog.models["b"].limits.max_slots is None
        assert (act.who, act.action, act.reason, act.outcome) == ("user:ann", "adjust", "because", "ok")
        assert "weight" not in act.before and "max_batch_jobs=2, weight=3.0" in act.after
    assert [row["target"] for row in rows(tmp_path, "state.db", "adjustments")] == ["a"]


@REAL_CLOCK
async def test_what_was_kept_and_is_no_limit_any_more_is_left_out(tmp_path, caplog):
    async with durable(tmp_path) as opened:
        await adjust(opened, weight=3.0)
    import sqlite3

    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute('update adjustments set "values" = \'{"royal": 1}\'')
    caplog.set_level("CRITICAL", "engine")
    async with durable(tmp_path) as opened:
        assert opened.catalog.models["a"].weight == 1.0
        assert (await opened.submit(request("a", "x"))).outputs
