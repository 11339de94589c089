"""Which units a catalogue makes on which devices."""

from __future__ import annotations

from engine.catalog import Catalog, Profile
from engine.units import on_devices
from tests import simulation


def test_a_dtype_makes_a_second_resident_only_where_it_changes_what_is_held():
    spec = simulation.model("a/b", devices=["cuda", "cpu"], profiles={"half": Profile(dtype="float16")})
    catalog = Catalog({"a/b": spec}, {})

    assert on_devices(catalog, ["cpu"]).models["a/b"].unit("half") == "a/b"
    assert on_devices(catalog, ["cpu", "cuda"]).models["a/b"].unit("half") == "a/b@float16"
