"""The catalogue changes while it is served: nobody is refused for it, and what is wrong changes nothing."""

from __future__ import annotations

import json
import random
from contextlib import asynccontextmanager

import anyio
import pytest

from engine import catalog as catalogues
from engine.devices.simulated import Simulated
from engine.errors import (
    CatalogRejected,
    EngineError,
    InvalidInput,
    LoadFailed,
    StateChanged,
    StillBusy,
    UnknownModel,
)
from engine.orders import Action, Order
from tests.simulation import MIB, Brittle, engine, request

pytestmark = pytest.mark.anyio

QUICK = {"weights_bytes": 400 * MIB, "load_seconds": 1.0, "seconds_per_batch": 0.004, "seconds_per_cost": 0.0}


def entry(name: str, **fields) -> dict:
    options = QUICK | fields.pop("options", {})
    return {
        "id": name,
        "family": "simulated",
        "tasks": ["encode"],
        "outputs": ["dense"],
        "dims": {"dense": 8},
        "devices": ["simulated"],
        "sources": [{"directory": "/"}],
        "options": options,
    } | fields


def write(folder, *entries: dict, **aliases: str) -> None:
    (folder / "it.yaml").write_text(json.dumps({"models": list(entries), "aliases": aliases}))


@asynccontextmanager
async def served(folder, *entries: dict, **settings):
    """By hand: files are read when the test says so."""
    write(folder, *entries)
    settings = {"catalog_watch": False} | settings
    async with engine(catalogues.load([folder], {"simulated"}), **settings) as opened:
        yield opened


def units(opened) -> dict[str, str]:
    return {r.unit: r.state for m in opened.view().models for r in m.residencies}


class Client:
    """Sends every 10 ms, and remembers how long each answer took and what went wrong."""

    def __init__(self, opened, name: str) -> None:
        self.took: list[float] = []
        self.wrong: list[EngineError] = []
        self._opened, self._name = opened, name

    async def send(self) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                tasks.start_soon(self._one)
                await anyio.sleep(0.01)

    async def _one(self) -> None:
        began = anyio.current_time()
        try:
            await self._opened.submit(request(self._name, "x"))
            self.took.append(anyio.current_time() - began)
        except EngineError as error:
            self.wrong.append(error)


@asynccontextmanager
async def clients(opened, name: str):
    client = Client(opened, name)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.send)
        await anyio.sleep(0.5)
        yield client
        await anyio.sleep(0.5)
        tasks.cancel_scope.cancel()


async def test_a_model_changes_its_version_without_a_gap(tmp_path):
    async with served(tmp_path, entry("a")) as opened:
        await opened.submit(request("a", "x"))
        async with clients(opened, "a") as client:
            write(tmp_path, entry("a", options={"seconds_per_batch": 0.003}))
            done = await opened.operators.reload_catalog()
            seen = units(opened)
        await anyio.sleep(1)
        left = units(opened)
        loads = opened.view().models[0].loads
        await opened.unload("a")  # nothing of it stays pinned
        assert units(opened) == {}

    assert done.replaced == ("a",) and seen["a#2"] == "ready"
    assert client.wrong == []
    assert len(client.took) > 150 and max(client.took) < 0.02
    assert left == {"a#2": "ready"} and loads == 2


async def test_requests_that_the_old_version_took_are_answered_by_it(tmp_path):
    slow = {"seconds_per_batch": 5.0}
    async with served(tmp_path, entry("a", options=slow), slots=2) as opened:
        await opened.load("a")
        answers = []

        async def ask():
            answers.append(await opened.submit(request("a", "x")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(0.1)
            write(tmp_path, entry("a"))
            await opened.operators.reload_catalog()
            quick = await opened.submit(request("a", "y"))
            assert answers == [] and set(units(opened)) == {"a", "a#2"}
        await anyio.sleep(0.1)
        left = units(opened)

    assert not answers[0].cold and not quick.cold
    assert left == {"a#2": "ready"}


async def test_the_queue_of_the_old_version_is_served_before_it_leaves(tmp_path):
    limits = {"max_batch_jobs": 1}
    async with served(tmp_path, entry("a", options={"seconds_per_batch": 0.5}, limits=limits)) as opened:
        await opened.load("a")
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(opened.submit, request("a", "x"))
            await anyio.sleep(0.1)
            write(tmp_path, entry("a", limits=limits))
            await opened.operators.reload_catalog()
        await anyio.sleep(0.1)
        left, loads = units(opened), opened.view().models[0].loads

    assert left == {"a#2": "ready"} and loads == 2


async def test_the_old_version_is_not_turned_out_for_the_new_one(tmp_path):
    async with served(tmp_path, entry("a"), entry("b"), memory=900 * MIB) as opened:
        await opened.submit(request("a", "x"))
        for _ in range(20):
            await opened.submit(request("b", "x"))  # it is worth more than what is asked for now and then
        await anyio.sleep(5)
        write(tmp_path, entry("a", options={"seconds_per_batch": 0.003}), entry("b"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.operators.reload_catalog)
            await anyio.sleep(0.5)
            meanwhile = await opened.submit(request("a", "x"))

    assert not meanwhile.cold


async def test_who_has_no_room_beside_both_versions_waits_and_is_not_refused(tmp_path):
    async with served(tmp_path, entry("a"), entry("c"), memory=900 * MIB) as opened:
        await opened.submit(request("a", "x"))
        write(tmp_path, entry("a", options={"seconds_per_batch": 0.003}), entry("c"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.operators.reload_catalog)
            await anyio.sleep(0.5)
            answer = await opened.submit(request("c", "x"))

    assert answer.cold and answer.timing.total < 2.0


async def test_an_engine_that_is_closed_amid_a_change_ends_at_once(tmp_path):
    with anyio.fail_after(5):
        async with served(tmp_path, entry("a", options={"load_seconds": 100.0})) as opened:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(opened.load, "a")
                await anyio.sleep(0.1)
                tasks.cancel_scope.cancel()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(opened.operators.operate, Order(Action.RELOAD, "a"))
                await anyio.sleep(0.1)
                tasks.cancel_scope.cancel()


async def test_what_is_held_for_a_change_is_not_called_pinned(tmp_path):
    async with served(tmp_path, entry("a")) as opened:
        await opened.load("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.operators.operate, Order(Action.RELOAD, "a"))
            await anyio.sleep(0.5)
            with pytest.raises(StillBusy, match="while its version changes"):
                await opened.unload("a")


async def test_a_pin_that_is_asked_for_while_versions_change_is_one_of_the_new_version(tmp_path):
    async with served(tmp_path, entry("a")) as opened:
        await opened.load("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.operators.operate, Order(Action.RELOAD, "a"))
            await anyio.sleep(0.5)
            await opened.pin("a")
        await anyio.sleep(0.1)
        view = opened.view().models[0]

    assert [(r.unit, r.state, r.pinned) for r in view.residencies] == [("a#2", "ready", True)]


@pytest.mark.parametrize("memory", [600, 900], ids=["with a hold", "beside each other"])
async def test_an_unpin_amid_a_change_ends_the_pin_and_not_the_change(tmp_path, memory):
    async with served(tmp_path, entry("a"), memory=memory * MIB) as opened:
        await opened.pin("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.operators.operate, Order(Action.RELOAD, "a"))
            await anyio.sleep(0.5)
            await opened.unpin("a")
        await anyio.sleep(0.1)
        view = opened.view().models[0]
        await opened.unload("a")

    assert [(r.unit, r.state, r.pinned) for r in view.residencies] == [("a#2", "ready", False)]


def with_adapters(*names: str, **options) -> dict:
    """`a`, each of whose adapters takes a second to come."""
    options = {"lora_bytes": 30 * MIB, "lora_seconds": 1.0, **options}
    return entry("a", options=options, loras={name: {"sources": [{"directory": "/"}]} for name in names})


async def test_an_adapter_that_is_unpinned_amid_a_change_is_so_of_the_new_version(tmp_path):
    async with served(tmp_path, with_adapters("legal", "medical")) as opened:
        await opened.pin("a:legal")
        await opened.pin("a:medical")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.operators.operate, Order(Action.RELOAD, "a"))
            await anyio.sleep(1.5)  # the new version is there, and the first of them comes
            await opened.unpin("a:medical")
            await opened.unpin("a:legal")
        await anyio.sleep(0.1)
        view = opened.view().models[0]
        await opened.unload("a")
        after = units(opened)

    assert {r.unit.partition(":")[0] for r in view.residencies} == {"a#2"}
    assert not any(r.pinned for r in view.residencies) and after == {}


async def test_a_new_version_comes_where_its_adapters_are_to_be(tmp_path):
    devices = tuple(Simulated(f"simulated:{name}", slots=1, memory=2048 * MIB) for name in "ab")
    async with served(tmp_path, with_adapters("legal"), entry("b"), devices=devices) as opened:
        await opened.operators.operate(Order(Action.PIN, "a:legal", device="simulated:b"))
        await opened.operators.operate(Order(Action.PIN, "b", device="simulated:b"))
        await opened.operators.operate(Order(Action.RELOAD, "a"))
        await anyio.sleep(0.1)
        pinned = [(r.unit, r.device) for m in opened.view().models for r in m.residencies if r.pinned]

    assert pinned == [("a#2:legal", "simulated:b"), ("b", "simulated:b")]


async def test_the_pin_of_an_adapter_that_is_no_more_keeps_no_model(tmp_path):
    async with served(tmp_path, with_adapters("legal")) as opened:
        await opened.pin("a:legal")
        write(tmp_path, with_adapters("medical"))
        await opened.operators.reload_catalog()
        before = units(opened)
        await opened.operators.operate(Order(Action.DRAIN, "a"))
        after = units(opened)

    assert before["a#2"] == "ready" and after == {}


@pytest.mark.parametrize("act", [Action.PIN, Action.LOAD])
async def test_an_act_amid_a_change_with_a_hold_is_one_on_the_new_version(tmp_path, act):
    async with served(tmp_path, entry("a"), memory=600 * MIB) as opened:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.operators.operate, Order(act, "a"))
            await anyio.sleep(0.5)
            tasks.start_soon(opened.operators.operate, Order(Action.RELOAD, "a"))
            await anyio.sleep(0.2)
            tasks.start_soon(opened.operators.operate, Order(act, "a"))
        await anyio.sleep(0.1)
        view = opened.view().models[0]

    assert [(r.unit, r.pinned) for r in view.residencies] == [("a#2", act is Action.PIN)]


@pytest.mark.parametrize("seed", range(6))
async def test_acts_that_overlap_on_one_model_never_stand_in_their_own_way(tmp_path, seed):
    """Twelve kinds of acts, each twice within 0.3 s, where two versions do not fit together."""
    dice = random.Random(seed)
    acts = [*Action, "load", "unload", "pin", "unpin"]
    acts.remove(Action.DRAIN)
    ended: list[tuple[str, EngineError]] = []
    options = {"load_seconds": 0.4, "seconds_per_batch": 0.1}
    async with served(tmp_path, entry("a", options=options), memory=700 * MIB) as opened:

        async def one(what: str) -> None:
            await anyio.sleep(dice.random() * 0.3)
            try:
                if what == "request":
                    await opened.submit(request("a", "x"))
                else:
                    await opened.operators.operate(Order(Action(what), "a"))
            except EngineError as error:
                ended.append((what, error))

        with anyio.fail_after(100):
            async with anyio.create_task_group() as tasks:
                for what in [*acts, *acts, *["request"] * 12]:
                    tasks.start_soon(one, what)

    assert {error.code for _, error in ended} <= {
        "INVALID_INPUT",
        "MODEL_BUSY",
        "MODEL_LOADING",
        "MODEL_PAUSED",
    }
    assert [error for what, error in ended if what == "reload"] == []


async def test_a_version_that_does_not_load_leaves_the_old_one_and_its_entry(tmp_path):
    async with served(tmp_path, entry("a")) as opened:
        await opened.submit(request("a", "x"))
        async with clients(opened, "a") as client:
            write(tmp_path, entry("a", options={"load_error": "no such weights"}), entry("b"))
            done = await opened.operators.reload_catalog()
        left, spec = units(opened), opened.catalog.models["a"]
        assert (await opened.submit(request("b", "x"))).outputs

    assert done.added == ("b",) and done.replaced == ()
    assert "no such weights" in done.rolled_back["a"]
    assert client.wrong == [] and max(client.took) < 0.02
    assert left == {"a": "ready"} and "load_error" not in spec.options


async def test_versions_that_do_not_fit_together_change_with_a_hold(tmp_path):
    async with served(tmp_path, entry("a"), memory=600 * MIB) as opened:
        await opened.submit(request("a", "x"))
        async with clients(opened, "a") as client:
            write(tmp_path, entry("a", options={"seconds_per_batch": 0.003}))
            done = await opened.operators.reload_catalog()
        await anyio.sleep(0.1)
        left = units(opened)

    assert done.replaced == ("a",) and left == {"a#2": "ready"}
    assert client.wrong == []
    assert 0.9 < max(client.took) < 1.1  # as long as the load, and no longer


async def test_a_hold_whose_version_does_not_load_ends_with_the_old_one(tmp_path):
    async with served(tmp_path, entry("a"), memory=600 * MIB) as opened:
        await opened.pin("a")
        write(tmp_path, entry("a", options={"load_error": "no such weights"}))
        done = await opened.operators.reload_catalog()
        await anyio.sleep(2)
        view = opened.view().models[0]
        answer = await opened.submit(request("a", "x"))

    assert "no such weights" in done.rolled_back["a"]
    assert [(r.unit, r.state, r.pinned) for r in view.residencies] == [("a", "ready", True)]
    assert not answer.cold


async def test_a_version_that_fits_nowhere_is_refused_before_anything_leaves(tmp_path):
    async with served(tmp_path, entry("a"), memory=600 * MIB) as opened:
        await opened.submit(request("a", "x"))
        write(tmp_path, entry("a", options={"weights_bytes": 900 * MIB}))
        done = await opened.operators.reload_catalog()
        view = opened.view().models[0]

    assert "900 MiB" in done.rolled_back["a"]
    assert view.loads == 1 and [r.unit for r in view.residencies] == ["a"]


async def test_a_pin_follows_its_model(tmp_path):
    async with served(tmp_path, entry("a")) as opened:
        await opened.pin("a")
        write(tmp_path, entry("a", options={"seconds_per_batch": 0.003}))
        await opened.operators.reload_catalog()
        await anyio.sleep(0.1)
        view = opened.view().models[0]
        with pytest.raises(InvalidInput, match="unpin it first"):
            await opened.unload("a")
        await opened.unpin("a")
        await opened.unload("a")
        after = units(opened)

    assert [(r.unit, r.pinned) for r in view.residencies] == [("a#2", True)]
    assert after == {}


async def test_a_pin_that_did_not_hold_holds_when_its_entry_is_mended(tmp_path):
    async with served(tmp_path, entry("a", options={"load_error": "wrong"}), pins=("a",)) as opened:
        assert opened.view().models[0].state == "failed"
        write(tmp_path, entry("a"))
        await opened.operators.reload_catalog()
        view = opened.view().models[0]

    assert [(r.unit, r.state, r.pinned) for r in view.residencies if r.state != "failed"] == [
        ("a#2", "ready", True)
    ]


async def test_the_price_of_a_pin_names_what_is_served_and_no_version_of_before(tmp_path):
    async with served(tmp_path, entry("a"), entry("b"), entry("c"), memory=600 * MIB) as opened:
        for name in "abc":
            await opened.load(name)
        for name in "ab":
            await opened.operators.operate(Order(Action.RELOAD, name))
        await opened.load("b")
        price = await opened.pin("a")

    assert price == ("b", "c")


async def test_what_nobody_loaded_is_replaced_without_a_load(tmp_path):
    async with served(tmp_path, entry("a", options={"load_error": "wrong"})) as opened:
        with pytest.raises(LoadFailed):
            await opened.submit(request("a", "x"))
        write(tmp_path, entry("a"))
        await opened.operators.reload_catalog()
        loads = opened.view().models[0].loads
        answer = await opened.submit(request("a", "x"))  # no cool-down of the old version holds it up

    assert loads == 0 and answer.cold


async def test_limits_and_profiles_change_at_once_and_load_nothing(tmp_path):
    async with served(tmp_path, entry("a")) as opened:
        await opened.submit(request("a", "x"))
        write(tmp_path, entry("a", limits={"max_item_bytes": 3}, profiles={"p": {}}, weight=2))
        done = await opened.operators.reload_catalog()
        with pytest.raises(EngineError) as refused:
            await opened.submit(request("a", "long enough"))
        answer = await opened.submit(request("a", "x", profile="p"))

    assert done.revised == ("a",) and done.replaced == ()
    assert refused.value.code == "INPUT_TOO_LONG"
    assert not answer.cold


async def test_a_model_that_is_gone_is_unknown_and_leaves_when_its_work_is_done(tmp_path):
    slow = {"seconds_per_batch": 5.0}
    async with served(tmp_path, entry("a", options=slow), entry("b")) as opened:
        await opened.pin("a")
        answers = []

        async def ask():
            answers.append(await opened.submit(request("a", "x")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(0.1)
            write(tmp_path, entry("b"))
            done = await opened.operators.reload_catalog()
            with pytest.raises(UnknownModel):
                await opened.submit(request("a", "y"))
        await anyio.sleep(0.1)
        held = opened.view().devices[0].used_bytes
        write(tmp_path, entry("a"), entry("b"))
        await opened.operators.reload_catalog()
        again = opened.view().models[0]

    assert done.removed == ("a",) and len(answers) == 1 and held == 0
    assert [(r.unit, r.pinned) for r in again.residencies] == [("a#2", True)]  # its pin was kept


async def test_a_catalogue_that_is_wrong_changes_nothing_and_says_every_line(tmp_path):
    async with served(tmp_path, entry("a")) as opened:
        write(tmp_path, entry("a", weight=0), entry("b", dtype="float8"), short="c")
        with pytest.raises(CatalogRejected) as refused:
            await opened.operators.reload_catalog()
        shown = opened.view().catalog
        assert (await opened.submit(request("a", "x"))).outputs
        assert [*opened.catalog.models] == ["a"]

    said = refused.value.details["complaints"]
    assert len(said) == 2 and all(line.startswith(f"{tmp_path}/it.yaml:1: models.") for line in said)
    assert shown.complaints == tuple(said) and shown.models == 1


async def test_files_are_watched_and_a_broken_one_is_told_once_and_mended(tmp_path, caplog):
    caplog.set_level("ERROR", "engine")
    async with served(tmp_path, entry("a"), catalog_watch=True) as opened:
        (tmp_path / "it.yaml").write_text("models: [")
        await anyio.sleep(20)
        broken, told = opened.view().catalog, [r for r in caplog.records if "catalogue" in r.message]
        assert (await opened.submit(request("a", "x"))).outputs
        write(tmp_path, entry("a"), entry("b"))
        await anyio.sleep(5)
        mended = opened.view().catalog
        assert (await opened.submit(request("b", "x"))).outputs

    assert broken.models == 1 and len(broken.complaints) == 1 and len(told) == 1
    assert mended.models == 2 and mended.complaints == ()


@pytest.mark.parametrize("watched", [True, False])
async def test_files_that_nobody_could_foresee_end_nothing(tmp_path, watched):
    async with served(tmp_path, entry("a"), catalog_watch=watched) as opened:
        for wrong in (
            'models: !!int ""',
            "models: !!bool maybe",
            "models: !!timestamp x",
            'models: !!float ""',
        ):
            (tmp_path / "more.yaml").write_text(wrong)
            await anyio.sleep(5)
            with pytest.raises(CatalogRejected) as refused:
                await opened.operators.reload_catalog()
            (said,) = opened.view().catalog.complaints
            assert said.startswith(f"{tmp_path}/more.yaml:1: ")
            assert refused.value.details["complaints"] == [said]
        assert (await opened.submit(request("a", "x"))).outputs


@pytest.mark.parametrize("watched", [True, False])
async def test_what_breaks_where_files_are_read_is_logged_and_ends_nothing(tmp_path, caplog, watched):
    caplog.set_level("CRITICAL" if watched else "ERROR", "engine")
    async with served(tmp_path, entry("a"), catalog_watch=watched, opening=Brittle()) as opened:
        await anyio.sleep(5)
        with pytest.raises(EngineError) as broken:
            await opened.operators.reload_catalog()
        assert (await opened.submit(request("a", "x"))).outputs

    assert type(broken.value) is EngineError and broken.value.code == "INTERNAL_ERROR"
    if not watched:
        (record,) = caplog.records
        assert record.exc_info is not None and "catalogue" in record.message


async def test_a_file_that_is_still_being_written_is_not_read(tmp_path):
    async with served(tmp_path, entry("a"), entry("b"), catalog_watch=True) as opened:
        await anyio.sleep(1)
        write(tmp_path, entry("a"))  # half of it
        await anyio.sleep(2)
        write(tmp_path, entry("a"), entry("b"), entry("c"))
        await anyio.sleep(10)
        change = opened.view().catalog.last_change

    assert (change.added, change.removed) == (("c",), ())


async def test_the_same_weights_are_loaded_anew_when_an_operator_says_so(tmp_path):
    async with served(tmp_path, entry("a")) as opened:
        await opened.load("a")
        async with clients(opened, "a") as client:
            await opened.operators.operate(Order(Action.RELOAD, "a"))
        await anyio.sleep(0.1)
        view = opened.view().models[0]

    assert client.wrong == [] and max(client.took) < 0.02
    assert [r.unit for r in view.residencies] == ["a#2"]


async def test_a_change_goes_on_when_whoever_asked_for_it_leaves(tmp_path):
    async with served(tmp_path, entry("a")) as opened:
        await opened.load("a")
        write(tmp_path, entry("a", options={"seconds_per_batch": 0.003}))
        with anyio.move_on_after(0.5):
            await opened.operators.reload_catalog()
        await anyio.sleep(2)
        left = units(opened)

    assert left == {"a#2": "ready"}


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_operators_and_files_do_everybody_is_answered_and_nothing_stays_behind(tmp_path, seed):
    """Three models of which two or one fit, random acts and changes at random moments, many at once."""
    dice = random.Random(seed)
    ended: list[str] = []

    def variant(name: str) -> dict:
        options = {"weights_bytes": dice.choice([300, 450]) * MIB, "load_seconds": dice.choice([0.1, 1.0])}
        options |= {"load_error": "no such weights"} if dice.random() < 0.1 else {}
        return entry(name, options=options, weight=dice.choice([1, 2]))

    names, deadline = "abc", 300.0
    async with served(tmp_path, *map(variant, names), memory=800 * MIB, slots=2, drain_limit=5.0) as opened:

        async def told(call) -> None:
            try:
                await call
                ended.append("ok")
            except EngineError as error:
                ended.append(error.code)

        async def act() -> None:
            await anyio.sleep(dice.uniform(0, 20))
            what = dice.choice([*Action, "request", "request", "request", "files", "files"])
            if what == "files":
                there = [name for name in names if dice.random() < 0.8]
                write(tmp_path, *map(variant, there))
                await told(opened.operators.reload_catalog())
            elif what == "request":
                await told(opened.submit(request(dice.choice(names), "x")))
            else:
                await told(opened.operators.operate(Order(Action(what), dice.choice(names))))

        with anyio.fail_after(deadline):
            async with anyio.create_task_group() as tasks:
                for _ in range(120):
                    tasks.start_soon(act)
        write(tmp_path, *[entry(name, options={"weights_bytes": 100 * MIB}) for name in names])
        await opened.operators.reload_catalog()
        await anyio.sleep(130)  # as long as anybody may be held
        for name in names:
            await told(opened.operators.operate(Order(Action.RESUME, name)))
            assert (await opened.submit(request(name, "x"))).outputs
            await told(opened.unpin(name))
            await told(opened.unload(name))
        view = opened.view()
        there = [r.unit for m in view.models for r in m.residencies if r.state != "failed"]
        known = [len([*opened.operators._units.versions(name)]) for name in names]

    assert len(ended) == 120 + 3 * len(names) and "INTERNAL_ERROR" not in ended
    assert there == [] and view.devices[0].used_bytes == 0
    assert known == [1, 1, 1]


async def test_a_pin_whose_adapter_leaves_its_entry_is_told_and_audited_and_holds_when_that_is_back(
    tmp_path, caplog
):
    caplog.set_level("WARNING", "engine.cataloguing")
    with_adapter = entry("a", loras={"legal": {"sources": [{"directory": "/"}]}})
    async with served(tmp_path, with_adapter) as opened:
        await opened.pin("a:legal")
        before = opened.operators.version("a")
        write(tmp_path, entry("a"))
        await opened.operators.reload_catalog(who="ann")
        with pytest.raises(StateChanged) as changed:
            await opened.operators.operate(Order(Action.LOAD, "a", if_version=before))
        told = [r.message for r in caplog.records if "a:legal" in r.message]
        write(tmp_path, with_adapter)
        await opened.operators.reload_catalog()
        await anyio.sleep(5)
        again = [r for m in opened.view().models for r in m.residencies if r.pinned]

    lost = [act for act in changed.value.details["changes"] if act["action"] == "lose-pin"]
    assert len(told) == 1 and "is pinned and has left the catalogue" in told[0]
    assert [act["who"] for act in lost] == ["ann"]
    assert [r.unit for r in again] == ["a#3:legal"]


async def test_a_pin_of_an_adapter_holds_again_when_its_model_is_back(tmp_path):
    async with served(tmp_path, with_adapters("legal"), entry("b")) as opened:
        await opened.pin("a:legal")
        write(tmp_path, entry("b"))
        await opened.operators.reload_catalog()
        await anyio.sleep(5)
        write(tmp_path, with_adapters("legal"), entry("b"))
        await opened.operators.reload_catalog()
        again = [r.unit for m in opened.view().models for r in m.residencies if r.pinned]

    assert again == ["a#2:legal"]


async def test_what_a_new_version_turns_out_is_not_said_to_go_by_an_operator(tmp_path, caplog):
    caplog.set_level("INFO", "engine.cataloguing")
    async with served(tmp_path, entry("a"), entry("b")) as opened:
        await opened.load("a")
        write(tmp_path, entry("a", options={"seconds_per_batch": 0.003}), entry("c"))
        await opened.operators.reload_catalog()
        await anyio.sleep(1)
        gone = [c for c in opened.closely.journal.changes if c.event in ("evicted", "unloaded")]
    (told,) = [r.message for r in caplog.records if "has changed" in r.message]

    assert [(c.unit, c.reason) for c in gone] == [("a", "its version serves no more")]
    assert told == "the catalogue has changed: 1 added (c), 1 removed (b), 1 replaced (a)"
