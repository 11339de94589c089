"""Making and removing a backend's environment, by commands that can be shown before they are run."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.backends.environment import COMPLETE, Environment
from engine.errors import InvalidInput, LoadFailed, StorageFull

WHEELS_BYTES = 4190 << 20
"""Of SGLang 0.5.23 and all that it needs: 238 wheels, counted by pip's resolver."""
DISK_BYTES = 12 << 30
"""Unpacked, with what pip keeps meanwhile. Estimated."""
GLIBC = (2, 34)
PYTHON = (3, 11)
LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Plan:
    """What an installation does, in order."""

    environment: Environment
    commands: tuple[tuple[str, ...], ...]

    def complaints(self) -> Iterator[str]:
        """Why it would fail on this machine, as far as that can be known before."""
        if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
            yield f"SGLang has wheels for Linux on x86_64 and aarch64, not for {platform.platform()}"
        library, version = platform.libc_ver()
        known = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
        if library != "glibc" or known < GLIBC:
            yield f"SGLang's kernels need glibc 2.34 or newer; here is {library or 'another'} {version}"
        free = shutil.disk_usage(_there(self.environment.folder)).free
        if free < DISK_BYTES:
            yield f"it needs about {DISK_BYTES >> 30} GiB of disk; {free >> 30} GiB are free there"


def plan(environment: Environment, python: str) -> Plan:
    """`python`: the interpreter that the environment is made with. Raises InvalidInput when it is too old."""
    _check(python)
    own = str(environment.own_python)
    return Plan(
        environment,
        (
            (python, "-m", "venv", str(environment.folder)),
            (own, "-m", "pip", "install", "--no-input", "--requirement", str(environment.requirements)),
        ),
    )


def install(what: Plan, say: Callable[[str], None]) -> float:
    """Runs the plan; `say` gets each line that is printed. Seconds that it took.

    Raises StorageFull, InvalidInput for an environment that is there or a machine that it cannot run
    on, and LoadFailed with the last lines of the step that failed.
    """
    environment = what.environment
    if environment.given is not None:
        raise InvalidInput(f"sglang_python names {environment.given}: nothing is installed beside that")
    if environment.state == "installed":
        raise InvalidInput(f"{environment.folder} is there; `serai backends remove {environment.name}` first")
    if wrong := list(what.complaints()):
        kind = StorageFull if "disk" in wrong[-1] else InvalidInput
        raise kind("; ".join(wrong))
    began = time.monotonic()
    environment.folder.parent.mkdir(parents=True, exist_ok=True)
    for command in what.commands:
        _run(command, say)
    (environment.folder / COMPLETE).write_text(environment.name)
    return time.monotonic() - began


def remove(environment: Environment) -> int:
    """How many bytes came free. Raises InvalidInput when nothing is there that was installed here."""
    if not environment.folder.is_dir():
        raise InvalidInput(f"{environment.name} is not installed in {environment.folder}")
    if not (environment.folder / "pyvenv.cfg").is_file():
        raise InvalidInput(f"{environment.folder} is no environment that was made here; it is left alone")
    size = Environment(environment.name, environment.folder).size()
    shutil.rmtree(environment.folder)
    return size


def _run(command: Sequence[str], say: Callable[[str], None]) -> None:
    last: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as step:
        assert step.stdout is not None
        for line in step.stdout:
            last = [*last, line.rstrip()][-LAST_LINES:]
            say(line.rstrip())
    if step.returncode:
        said = "\n".join(last)
        text = f"`{' '.join(command)}` ended with code {step.returncode}. It said:\n{said}"
        raise LoadFailed(text, permanent=False)


def _check(python: str) -> None:
    asked = "import sys; print(*sys.version_info[:2])"
    try:
        told = subprocess.run([python, "-c", asked], capture_output=True, text=True, timeout=30, check=True)
        version = tuple(int(part) for part in told.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise InvalidInput(f"{python} is no Python that runs here: {error}") from error
    if version < PYTHON:
        raise InvalidInput(f"SGLang needs Python 3.11 or newer; {python} is {'.'.join(map(str, version))}")


def _there(folder: Path) -> Path:
    """The nearest place that exists."""
    return next(place for place in (folder, *folder.parents) if place.exists())
