"""Which units a catalogue makes on which devices."""

from __future__ import annotations

import pytest

from engine.catalog import Catalog, Profile
from engine.errors import UnknownModel
from engine.units import Units, base, on_devices, parted
from tests import simulation


def test_a_dtype_makes_a_second_resident_only_where_it_changes_what_is_held():
    spec = simulation.model("a/b", devices=["cuda", "cpu"], profiles={"half": Profile(dtype="float16")})
    catalog = Catalog({"a/b": spec}, {})

    assert on_devices(catalog, ["cpu"]).models["a/b"].unit("half") == "a/b"
    assert on_devices(catalog, ["cpu", "cuda"]).models["a/b"].unit("half") == "a/b@float16"


def test_adapters_are_units_over_whichever_version_serves():
    spec = simulation.model("a", loras={"legal": {"sources": [{"directory": "/"}]}}, idle_unload=60)
    units = Units(simulation.catalog(spec))
    new = units.begin(spec, None)

    assert units.adapters("a") == ["a:legal"] and units.facts("a:legal").adapts == "a"
    assert (units.serving("a:legal"), units.facts(f"{new}:legal").idle_unload) == ("a:legal", 60)
    assert (base("a#2:legal"), parted("a#2:legal")) == ("a:legal", ("a#2", "legal"))

    units.serve(units.catalog, {"a": new})
    units.drop("a")

    assert units.serving("a:legal") == "a#2:legal" and not units.adapters("a")
    assert not units.serves("a:other") and not units.serves("b:legal")
    with pytest.raises(UnknownModel):
        units.serving("a:other")
