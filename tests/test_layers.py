"""Who may import whom: the engine knows nothing of the web, and what decides knows nothing of time."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOOP = {"anyio", "asyncio", "trio", "logging", "time", "threading"}

FORBIDDEN = {
    "engine": {"web", "replay", "aiohttp", "aiohttp_jinja2", "click", "rich"},
    "replay": {"web", "aiohttp", "aiohttp_jinja2", "jinja2"},
    "web/api": {"torch", "transformers"},
    "web/console": {"torch", "transformers"},
    "engine/scheduling": LOOP | {"torch", "numpy"},
    "engine/memory": LOOP | {"torch", "numpy"},
    "engine/access/limits.py": LOOP | {"torch"},
    "engine/access/principals.py": LOOP | {"torch"},
    "engine/catalog.py": LOOP | {"torch"},
    "engine/config.py": LOOP | {"torch"},
    "engine/requests.py": LOOP | {"torch"},
    "engine/errors.py": LOOP | {"torch"},
    "engine/quantities.py": LOOP | {"torch"},
}


def files(place: str) -> list[Path]:
    root = ROOT / place
    return [root] if root.is_file() else sorted(root.rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Top-level names that `path` imports anywhere, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("place", FORBIDDEN)
def test_no_import_points_the_wrong_way(place):
    assert files(place)
    wrong = {str(path.relative_to(ROOT)): imports(path) & FORBIDDEN[place] for path in files(place)}

    assert {path: names for path, names in wrong.items() if names} == {}


def test_what_decides_never_waits():
    waiting = {
        str(path.relative_to(ROOT))
        for place in ("engine/scheduling", "engine/memory")
        for path in files(place)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.AsyncFunctionDef | ast.Await)
    }

    assert waiting == set()


@pytest.mark.parametrize("package", ["engine", "web", "replay"])
def test_every_module_says_what_it_is_for(package):
    silent = [
        str(path.relative_to(ROOT))
        for path in files(package)
        if path.stat().st_size and not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]

    assert silent == []


def test_no_file_names_the_place_where_it_was_written():
    names = ["/" + "work/", "." + "./shared", "/" + "root/"]
    tracked = [
        "engine",
        "web",
        "replay",
        "catalog",
        "templates",
        "docs",
        "loadtests",
        "tests",
        "deploy",
        ".ci",
    ]
    texts = [p for place in tracked for p in (ROOT / place).rglob("*") if p.is_file()]
    texts += [p for p in ROOT.iterdir() if p.is_file()]
    guilty = [
        str(path.relative_to(ROOT))
        for path in texts
        if path.suffix in {".py", ".md", ".toml", ".txt", ".yaml", ".html", ".js", ".css", ""}
        and "__pycache__" not in path.parts
        and any(name in path.read_text("utf-8", errors="replace") for name in names)
    ]

    assert guilty == []
