"""A tiny model directory, and an interpreter whose `sglang` is the fake one, for the tests of that family."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.adapters.family import Prepared, Progressed
from engine.adapters.sglang import FAMILY, SGLang
from engine.adapters.sglang_server.model import Served
from engine.catalog import Limits, ModelSpec
from engine.requests import GenerateOptions, Item, Task
from tests.engine.adapters.tiny_decoders import spec as plain

HERE = Path(__file__).parent


def python(folder: Path) -> Path:
    """An interpreter as `sglang_python` may name one: ours, with the fake in front of its path."""
    made = folder / "python"
    made.write_text(f'#!/bin/sh\nPYTHONPATH={HERE / "fake_sglang"} exec {sys.executable} "$@"\n')
    made.chmod(0o755)
    return made


def entry(path: Path, *, arguments: tuple[str, ...] = (), pool: int = 4096, **changes: Any) -> ModelSpec:
    options = {
        "max_total_tokens": pool,
        "overhead_bytes": 1 << 20,
        "start_seconds": 20.0,
        "arguments": arguments,
    }
    limits = Limits(max_slots=1, max_running=16)
    fields = {"family": "sglang", "devices": ("cpu",), "limits": limits, "options": options}
    return plain(path, **{**fields, **changes})


def family(folder: Path) -> SGLang:
    return FAMILY.beside(python(folder))


def prepare(path: Path, text: str, **options: Any) -> Prepared:
    asked = GenerateOptions(raw=True, **options)
    (prepared,) = FAMILY.preparer(entry(path), path).prepare(Task.GENERATE, [Item(text=text)], asked)
    assert isinstance(prepared, Prepared), prepared
    return prepared


def run(model: Served, jobs: Mapping[str, Prepared], seconds: float = 15.0) -> dict[str, list[Progressed]]:
    """Quanta until all have ended: what each said of every sequence."""
    said: dict[str, list[Progressed]] = {job: [] for job in jobs}
    until, joining = time.monotonic() + seconds, jobs
    while any(not told or told[-1].done is None for told in said.values()):
        assert time.monotonic() < until, said
        for job, told in model.advance(joining, (), 0.05).items():
            said[job].append(told)
        joining = {}
    return said


def notes(path: Path, name: str) -> list[str]:
    """What the fake noted under this name."""
    note = path / f"note {name}"
    return note.read_text().split("\n")[:-1] if note.exists() else []


def alive(pid: int) -> bool:
    """Whether the process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
