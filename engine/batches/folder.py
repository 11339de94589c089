"""Contents of files on disk, and results as they are written. Everything here blocks: call it in a thread."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".part"


class Folder:
    """One directory, which nobody else may read, with one file an id."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def path(self, key: str) -> Path:
        return self._place / key

    def begin(self, key: str) -> BinaryIO:
        """A file that is not there before `finish`."""
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        return os.fdopen(os.open(self.path(key + PARTIAL), flags, 0o600), "wb")

    def finish(self, key: str, file: BinaryIO) -> None:
        """It is on disk, under its name, when this returns."""
        with file:
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path(key + PARTIAL), self.path(key))
        self._sync()

    def drop(self, key: str) -> None:
        for name in (key, key + PARTIAL):
            with suppress(OSError):
                self.path(name).unlink(missing_ok=True)

    def size(self, key: str) -> int:
        """Its bytes; 0 where there is none."""
        with suppress(FileNotFoundError):
            return self.path(key).stat().st_size
        return 0

    def names(self) -> list[str]:
        """Of all files that are here, those that a crash left behind among them."""
        return [path.name for path in self._place.iterdir() if path.is_file()] if self._place.is_dir() else []

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.path(name).unlink(missing_ok=True)

    def results(self, key: str) -> Results:
        """The file to append results to, made where there is none. A line that was cut is taken off."""
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        results = Results(self.path(key))
        self._sync()
        return results

    def _sync(self) -> None:
        place = os.open(self._place, os.O_RDONLY)
        try:
            os.fsync(place)
        finally:
            os.close(place)


class Results:
    """A file that grows by groups of whole lines, each on disk when `append` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        self.size = 0
        """Bytes of the whole lines in it."""
        with path.open("rb") as file:
            for line in file:
                self.size += len(line) if line.endswith(b"\n") else 0
        os.truncate(self._file, self.size)

    def lines(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            yield from file

    def append(self, lines: Iterable[bytes]) -> None:
        """All of them or, when this raises OSError, none."""
        group = memoryview(b"".join(line + b"\n" for line in lines))
        if not group:
            return
        written = 0
        try:
            while written < len(group):  # a disk that is nearly full takes a part
                written += os.pwrite(self._file, group[written:], self.size + written)
            os.fsync(self._file)
        except OSError:
            with suppress(OSError):
                os.truncate(self._file, self.size)
            raise
        self.size += len(group)

    def close(self) -> None:
        os.close(self._file)
