"""Which changes of an entry need other weights, and which take effect at once."""

from __future__ import annotations

import pytest

from engine.catalog import Catalog
from engine.catalog_changes import compare, meanwhile
from tests.simulation import catalog, model


def changed(**fields: object) -> str:
    """What `compare` makes of an entry with these fields in place of its own."""
    plain = {"profiles": {"half": {"dtype": "float16"}, "p": {}}}
    change = compare(catalog(model("a", **plain)), catalog(model("a", **{**plain, **fields})))
    (kind,) = [kind for kind in ("added", "removed", "revised", "replaced") if getattr(change, kind)]
    return kind


@pytest.mark.parametrize(
    "fields",
    [
        {"sources": [{"directory": "/elsewhere"}]},
        {"family": "other"},
        {"dtype": "float16"},
        {"options": {"weights_bytes": 5}},
        {"dims": {"dense": 4}},
        {"pooling": "cls"},
        {"max_tokens": 99},
        {"devices": ["cpu"]},
        {"trust_remote_code": True},
        {"profiles": {"half": {"dtype": "float16", "options": {"x": 1}}, "p": {}}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_is_loaded_differs(fields):
    assert changed(**fields) == "replaced"


@pytest.mark.parametrize(
    "fields",
    [
        {"limits": {"max_slots": 1}},
        {"prompts": {"query": "q: {text}"}},
        {"service_class": "interactive"},
        {"weight": 3},
        {"targets": {"standard": 1.0}},
        {"degrade": "a:p"},
        {"idle_unload": 5},
        {"preheat": ["08:00"]},
        {"labels": {"x": "y"}},
        {"profiles": {"half": {"dtype": "float16"}, "p": {"options": {"x": 1}}, "new": {}}},
        {"profiles": {"p": {}}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_is_loaded_is_the_same(fields):
    assert changed(**fields) == "revised"


def test_one_that_generates_sets_memory_aside_by_its_limits():
    few, many = [model("a", ("generate",), limits={"max_running": n}) for n in (2, 4)]

    assert compare(catalog(few), catalog(many)).replaced == ("a",)


def test_nothing_has_changed_in_what_is_the_same():
    assert not compare(catalog(model("a")), catalog(model("a")))


def test_until_its_weights_are_there_an_entry_is_the_old_one_and_leads_where_the_new_one_does():
    old = catalog(model("a", degrade="gone"), model("gone"), model("b"))
    new = Catalog(catalog(model("a", degrade="b", pooling="cls"), model("b", weight=2)).models, {"x": "a"})

    now = meanwhile(old, new, compare(old, new).replaced)

    assert [*now.models] == ["a", "b"] and now.aliases == {"x": "a"}
    assert (now.models["a"].pooling, now.models["a"].degrade) == (None, "b")
    assert now.models["b"].weight == 2
