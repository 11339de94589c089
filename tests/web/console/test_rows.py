from __future__ import annotations

from dataclasses import replace

from engine.catalog import Catalog
from engine.journal import Journal
from engine.view import EngineView, ModelView, ResidencyView
from engine.wishes import Audited
from tests.simulation import catalog, model
from web.console.hub import pinners
from web.console.rows import Sources, Table, chosen
from web.console.sampler import Sampler

USED = "used before; leaves when room is needed"


def here(unit: str, **fields: object) -> ResidencyView:
    return ResidencyView(unit, "cpu", **{"state": "ready", "weights_bytes": 1000, "why": USED, **fields})


def sources(*models: ModelView, **fields: object) -> Sources:
    known: Catalog = catalog(*(model(each.id) for each in models))
    made = Sources(
        catalog=known,
        view=EngineView(models, ()),
        sampler=Sampler(),
        journal=Journal(),
        numbers={each.id: n for n, each in enumerate(models)},
        versions={},
        pinners={},
        settings_pins=(),
        leaving={},
        now=1000.0,
        wall=5000.0,
    )
    return replace(made, **fields)


def rows(of: Sources):
    table = Table()
    table.update(of)
    return table.rows


def act(number: int, action: str, unit: str, who: str, outcome: str | None = "ok") -> Audited:
    return Audited(number, 5000.0 - 7200, who, action, unit, "invoices", "", "", outcome, None)


def test_a_model_whose_weights_are_not_here_says_so():
    known = ModelView("a", "available")

    assert rows(sources(known, missing=frozenset({"a"})))[0].why == "no weights here"
    assert rows(sources(known))[0].why == ""


def test_a_pin_says_by_whom_and_when_and_why():
    pinned = ModelView("a", "loaded", (here("a", pinned=True, why="pinned"),))
    acts = [act(3, "unpin", "a", "bob"), act(2, "pin", "a", "user:ann"), act(1, "pin", "a", "user:eve")]

    (row,) = rows(sources(pinned, pinners=pinners(acts)))

    assert row.why == "pinned by ann 2 h ago: invoices"


def test_a_pin_that_failed_is_nobodys():
    assert pinners([act(1, "pin", "a", "ann", outcome="NO_ROOM")]) == {}


def test_a_pin_of_the_settings_is_told_as_that():
    pinned = ModelView("a", "loaded", (here("a", pinned=True, why="pinned"),))

    assert rows(sources(pinned, settings_pins=("a",)))[0].why == "pinned by the settings"


def test_one_that_idles_says_for_how_long_and_when_it_would_leave():
    idle = ModelView("a", "loaded", (here("a", idle=12 * 60 + 5),))

    assert rows(sources(idle))[0].why == "idle 12 min"
    assert rows(sources(idle, leaving={("a", "cpu"): 1}))[0].why == "idle 12 min, next to leave"
    assert rows(sources(idle, leaving={("a", "cpu"): 3}))[0].why == "idle 12 min, 3. to leave"


def test_one_that_failed_and_one_that_is_paused_say_so():
    failed = ModelView("a", "failed", last_error={"message": "no such file"}, paused=True)

    assert rows(sources(failed))[0].why == "no such file; paused: new requests are refused"


def test_a_row_that_would_say_the_same_is_not_told_again():
    table, other = Table(), ModelView("b", "available")
    first = sources(ModelView("a", "loaded", (here("a", idle=5.0),)), other)

    def fresh(model: ModelView) -> list[str]:
        table.update(replace(first, view=EngineView((model, other), ())))
        return [row.id for row in table.fresh]

    assert fresh(ModelView("a", "loaded", (here("a", idle=5.0),))) == ["a", "b"]
    assert fresh(ModelView("a", "loaded", (here("a", idle=9.0),))) == []
    assert fresh(ModelView("a", "loaded", (here("a"),), waiting=3)) == ["a"]


def test_the_filter_takes_every_word_of_name_state_device_and_task():
    found = rows(
        sources(ModelView("org/fast", "loaded", (here("org/fast"),)), ModelView("org/slow", "available"))
    )

    assert [row.id for row in chosen(found, "ORG cpu", "", "name")] == ["org/fast"]
    assert [row.id for row in chosen(found, "encode", "", "name")] == ["org/fast", "org/slow"]
    assert [row.id for row in chosen(found, "", "available", "name")] == ["org/slow"]
    assert chosen(found, "org nothing", "", "name") == []


def test_rows_come_in_the_order_that_was_asked_for():
    found = rows(
        sources(
            ModelView("a", "available"),
            ModelView("b", "loaded", (here("b", weights_bytes=10),), waiting=5),
            ModelView("c", "loaded", (here("c", weights_bytes=20, pinned=True),)),
        )
    )

    assert [row.id for row in chosen(found, "", "", "activity")] == ["c", "b", "a"]
    assert [row.id for row in chosen(found, "", "", "bytes")] == ["c", "b", "a"]
    assert [row.id for row in chosen(found, "", "", "waiting")] == ["b", "a", "c"]
    assert [row.id for row in chosen(found, "", "pinned", "name")] == ["c"]


def test_what_is_nowhere_comes_in_the_order_in_which_it_could_be_had():
    names = ("a/hub", "b/wheel", "c/here")
    places = {
        "a/hub": [{"hub": "a/hub"}],
        "b/wheel": [{"hub": "b"}, {"wheel": "b==1"}],
        "c/here": [{"directory": "/"}],
    }
    known = catalog(*(model(name, sources=places[name]) for name in names))
    made = sources(*(ModelView(name, "available", ()) for name in names), catalog=known)

    assert [row.id for row in chosen(rows(made), "", "", "activity")] == ["b/wheel", "c/here", "a/hub"]


def test_adapters_are_counted_and_a_pin_of_one_is_not_the_models():
    adapters = (here("a#2:legal", pinned=True, why="pinned"), here("a#2:medical"))
    model = ModelView("a", "loaded", (here("a#2", idle=5.0), *adapters))

    (row,) = rows(sources(model))

    assert (row.why, row.pinned, row.size_bytes) == ("idle; 2 adapters", False, 3000)
