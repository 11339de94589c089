"""The wheel holds three packages, the bundled catalogue and templates, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from engine import __version__

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    place = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = place.glob("*.whl")
    return zipfile.ZipFile(path)


def beside_code(folder: str) -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_three_packages_and_nothing_else(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name}

    assert tops == {"engine", "web", "replay"}


def test_the_wheel_holds_what_is_not_python_too(wheel):
    bundled = {f"engine/_bundled/{name}" for name in beside_code("catalog") | beside_code("templates")}
    expected = bundled | beside_code("web/static") | beside_code("engine/sources")

    assert expected <= set(wheel.namelist())
    assert not [name for name in wheel.namelist() if name.endswith(".pyc")]


def test_the_wheel_says_its_version_licence_and_command(wheel):
    info = f"serai-{__version__}.dist-info"
    metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())

    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Apache License" in wheel.read(f"{info}/licenses/LICENSE").decode()
    assert "serai = web.__main__:main" in wheel.read(f"{info}/entry_points.txt").decode()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def wanted() -> list[Requirement]:
    project = PROJECT["project"]
    groups = [*project["optional-dependencies"].values(), *PROJECT["dependency-groups"].values()]
    return [Requirement(line) for group in [project["dependencies"], *groups] for line in group]


def test_everything_we_depend_on_is_pinned_within_its_bounds():
    found = pins()

    assert [str(r) for r in wanted() if canonicalize_name(r.name) not in found] == []
    assert [str(r) for r in wanted() if Version(found[canonicalize_name(r.name)]) not in r.specifier] == []


def test_what_breaks_the_others_is_never_a_dependency():
    names = {canonicalize_name(r.name) for r in wanted()} | set(pins())

    assert not names & {"docling", "torchvision", "sglang", "onnxruntime-gpu", "pytest-asyncio"}
