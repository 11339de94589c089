"""`serai backends`, all but the download: what it would do, what it says is wrong, what it removes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from engine.adapters.sglang import FAMILY, SGLang
from engine.backends import installing
from engine.backends.environment import COMPLETE, Environment, on_this_machine
from engine.config import Settings
from engine.errors import InvalidInput, LoadFailed, StorageFull
from web.cli import serai


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(store=tmp_path / "store")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(serai, [str(argument) for argument in arguments])


def made(settings: Settings, *, complete: bool = True) -> Environment:
    """An environment as `install` leaves it, less the packages but one."""
    environment = Environment.of("sglang", settings)
    about = environment.folder / "lib" / "python3.11" / "site-packages" / "sglang-0.5.23.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.23\n")
    (environment.folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    if complete:
        (environment.folder / COMPLETE).write_text("sglang")
    return environment


def test_a_dry_run_says_what_would_be_done_and_does_nothing(settings):
    said = call("backends", "install", "sglang", "--dry-run", "--store", settings.store)

    assert said.exit_code == 0
    assert f"-m venv {settings.store}/backends/sglang" in said.output
    assert "bin/python -m pip install --no-input --requirement" in said.output
    assert "4.1 GiB of wheels" in said.output
    assert not settings.store.exists()


def test_every_requirement_is_pinned_and_none_is_ours():
    lines = Path(installing.__file__).with_name("sglang.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)

    assert pins["sglang"] == "0.5.23" and pins["torch"] == "2.14.1"
    ours = dict(line.split("==") for line in Path("constraints.txt").read_text().splitlines() if "==" in line)
    assert {name for name in ("torch", "transformers") if pins[name] == ours[name]} == set()


def test_an_unknown_backend_and_an_interpreter_that_does_not_run_are_said(settings):
    assert "no backend 'vllm'" in call("backends", "install", "vllm").output
    wrong = call("backends", "install", "sglang", "--python", "/no/python", "--store", settings.store)
    assert wrong.exit_code == 1 and "/no/python is no Python that runs here" in wrong.output


def test_without_room_on_disk_nothing_is_begun(settings, monkeypatch):
    monkeypatch.setattr(installing, "DISK_BYTES", 1 << 60)
    plan = installing.plan(Environment.of("sglang", settings), sys.executable)

    with pytest.raises(StorageFull, match="GiB of disk"):
        installing.install(plan, print)
    assert not settings.store.exists()


def test_a_step_that_fails_is_told_with_its_last_lines_and_leaves_the_backend_incomplete(
    settings, monkeypatch
):
    monkeypatch.setattr(installing, "DISK_BYTES", 0)
    environment = Environment.of("sglang", settings)
    program = "import sys; print('no matching distribution'); sys.exit(3)"
    makes = f"import os; os.makedirs({str(environment.folder)!r})"
    plan = installing.Plan(environment, ((sys.executable, "-c", makes), (sys.executable, "-c", program)))
    said: list[str] = []

    with pytest.raises(LoadFailed, match=r"ended with code 3\. It said:\nno matching distribution"):
        installing.install(plan, said.append)

    assert said == ["no matching distribution"]
    assert environment.state == "incomplete" and environment.python is None


def test_an_installed_one_is_listed_used_and_not_installed_twice(settings):
    environment = made(settings)
    (listed,) = json.loads(call("backends", "list", "--json", "--store", settings.store).output)

    assert (listed["state"], listed["version"]) == ("installed", "0.5.23") and listed["bytes"] > 0
    family = on_this_machine(FAMILY, settings)
    assert isinstance(family, SGLang) and family.python == environment.own_python
    with pytest.raises(InvalidInput, match="serai backends remove sglang"):
        installing.install(installing.plan(environment, sys.executable), print)


def test_the_interpreter_that_the_settings_name_goes_first_and_is_never_touched(settings, tmp_path):
    made(settings)
    given = settings.model_copy(update={"sglang_python": tmp_path / "env" / "bin" / "python"})
    environment = Environment.of("sglang", given)

    assert environment.state == "given" and environment.python == given.sglang_python
    with pytest.raises(InvalidInput, match="nothing is installed beside that"):
        installing.install(installing.plan(environment, sys.executable), print)


def test_removing_deletes_what_was_made_here_and_nothing_else(settings):
    environment = made(settings)

    said = call("backends", "remove", "sglang", "--store", settings.store)
    assert "is gone" in said.output and not environment.folder.exists()

    assert "not installed" in call("backends", "remove", "sglang", "--store", settings.store).output
    environment.folder.mkdir()
    (environment.folder / "letters.txt").touch()
    assert "left alone" in call("backends", "remove", "sglang", "--store", settings.store).output
    assert (environment.folder / "letters.txt").exists()
