"""The real `serai serve` as a child process, and what its own metrics say of it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

from tests.weights import test_sources

SERAI = str(Path(sys.executable).with_name("serai"))

PATIENCE = 90.0
"""Seconds that a busy machine gets for anything; nothing is asserted of how long it takes."""


@dataclass
class Server:
    """A server that runs, and the eyes of an operator."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE)
        self.seen = psutil.Process(self.process.pid)

    def total(self, name: str, **labels: str) -> float:
        """The sum of all samples of a metric that have these labels; 0 where there is none."""
        text = self.http.get("/metrics").raise_for_status().text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def changes(self, unit: str, event: str) -> int:
        """How often `unit` was loaded, evicted, unloaded, or failed to load."""
        return int(self.total("serai_residency_changes_total", unit=unit, event=event))

    def model(self, name: str) -> dict[str, Any]:
        return self.http.get(f"/v1/models/{name}").raise_for_status().json()

    def until(self, condition: Callable[[], Any], step: float = 0.02) -> None:
        """Returns when `condition` holds; what it waits for is in another process."""
        late = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < late, self.said()
            time.sleep(step)

    def said(self) -> str:
        """The last that the server wrote to its log."""
        return self.log.read_text("utf-8")[-4000:]


@contextmanager
def serving(place: Path, program: Sequence[str] = (SERAI,), **settings: object) -> Iterator[Server]:
    """A server on a free port with directories of its own below `place`, until the block ends."""
    command = [*program, "serve", "--port", "0", "--offline"]
    settings = {"state_dir": place / "state", "store": test_sources().store.root, **settings}
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    place.mkdir(parents=True, exist_ok=True)
    log = place / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, cwd=place, env=_environment(place), stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        server = Server(_announced(process, log), process, log)
        with server.http:
            yield server
    finally:
        _end(process)


def _environment(place: Path) -> dict[str, str]:
    """Nothing of the caller's own settings; two arenas, with which memory that is freed goes back."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SERAI_", "HF_", "XDG_"))}
    return kept | {"HF_HUB_OFFLINE": "1", "MALLOC_ARENA_MAX": "2", "XDG_CONFIG_HOME": str(place)}


def _announced(process: subprocess.Popen[str], log: Path) -> str:
    """The URL that it prints once it can be asked."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], PATIENCE)
    line = process.stdout.readline() if readable else ""
    assert line.startswith("Serai is at http://"), (line, log.read_text("utf-8"))
    return line.split()[3].rstrip("/")


def _end(process: subprocess.Popen[str]) -> None:
    """Whatever the test did to it, nothing of it stays."""
    family = [psutil.Process(process.pid)] if process.poll() is None else []
    family += [child for parent in family for child in parent.children(recursive=True)]
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
    for one in family:
        if one.is_running():
            one.kill()
