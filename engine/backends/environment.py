"""Environments of their own for backends whose pins conflict with ours: where they are and what is in them.

Nothing of such an environment is ever imported here; its interpreter is run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal, Protocol, Self, runtime_checkable

from engine.adapters.family import Family
from engine.config import Settings
from engine.errors import InvalidInput

COMPLETE = "serai-backend"
"""A file in an environment that was installed to its end; it holds the backend's name."""
NAMES = ("sglang",)


@runtime_checkable
class Apart(Protocol):
    """A family whose models run in an environment of their own."""

    def beside(self, python: Path | None) -> Family: ...


@dataclass(frozen=True, slots=True)
class Environment:
    """Of one backend, whether it is there or not."""

    name: str
    folder: Path
    given: Path | None = None
    """An interpreter that the settings name instead."""

    @classmethod
    def of(cls, name: str, settings: Settings) -> Self:
        """Raises InvalidInput for a name that is no backend's."""
        if name not in NAMES:
            raise InvalidInput(f"there is no backend {name!r}; there is: {', '.join(NAMES)}")
        return cls(name, settings.store / "backends" / name, settings.sglang_python)

    @property
    def requirements(self) -> Path:
        return Path(__file__).with_name(f"{self.name}.txt")

    @property
    def own_python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def state(self) -> Literal["given", "installed", "incomplete", "absent"]:
        if self.given is not None:
            return "given"
        if (self.folder / COMPLETE).is_file():
            return "installed"
        return "incomplete" if self.folder.is_dir() else "absent"

    @property
    def python(self) -> Path | None:
        """What runs the backend; None where nothing can."""
        if self.given is not None:
            return self.given
        return self.own_python if self.state == "installed" else None

    def version(self) -> str | None:
        """Of the backend's package, as its environment says."""
        python = self.python
        if python is None:
            return None
        places = [str(place) for place in python.parent.parent.glob("lib/python*/site-packages")]
        found = metadata.distributions(name=self.name, path=places)
        return next((each.version for each in found), None)

    def size(self) -> int:
        """Bytes on disk of an environment that was installed here; 0 for one that is given."""
        return 0 if self.given else sum(_sizes(self.folder))


def on_this_machine(family: Family, settings: Settings) -> Family:
    """The family, told where its environment is if it needs one of its own."""
    if not isinstance(family, Apart):
        return family
    return family.beside(Environment.of("sglang", settings).python)


def _sizes(folder: Path) -> Iterator[int]:
    for place, _, files in os.walk(folder):
        for name in files:
            yield os.lstat(os.path.join(place, name)).st_blocks * 512
