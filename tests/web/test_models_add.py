"""`serai models add`: an entry of what a repository in the hub's cache says."""

from __future__ import annotations

import huggingface_hub.constants
import pytest
from click.testing import CliRunner

from engine import catalog
from tests.engine.adopting.repositories import EMBEDDER, cached
from web.cli import serai


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for variable in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{variable}_HOME", str(tmp_path / variable.lower()))
    cached(tmp_path / "hub", "org/it", EMBEDDER)

    def call(*arguments: str):
        return CliRunner().invoke(serai, ["models", *arguments, "--set", f"state_dir={tmp_path / 'state'}"])

    return call


def test_an_entry_is_printed_and_nothing_is_written(call, tmp_path):
    said = call("add", "org/it")

    assert said.exit_code == 0 and said.stdout.startswith("id: org/it\nfamily: text_encoder\n")
    assert not (tmp_path / "state").exists()


def test_what_is_written_is_in_the_catalogue(call, tmp_path):
    assert call("add", "org/it", "--write").exit_code == 0

    (spec,) = catalog.load([tmp_path / "state" / "catalog"])
    assert spec.id == "org/it"
    assert "family: text_encoder" in call("show", "org/it").stdout
    again = call("add", "org/it", "--write")
    assert again.exit_code == 1 and "org/it is in the catalogue" in again.output


def test_what_is_not_there_is_said_in_one_line(call):
    said = call("add", "org/other")

    assert said.exit_code == 1
    assert "Nothing is known of org/other" in said.output and "Traceback" not in said.output
