"""Where in a file of results each line's answer stands, so that a part of them is read without the rest."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from pathlib import Path
from threading import Lock

from engine.batches import lines

KEPT = 16
"""Files whose places are remembered: eight bytes a line."""
NOWHERE = -1


class Places:
    """Of files that no longer grow. Everything here blocks: call it in a thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[Path, array[int]] = OrderedDict()
        self._lock = Lock()

    def among(self, path: Path, numbers: range) -> list[tuple[int, bytes]]:
        """The results in a file that are of these lines, each with its line's number. Raises
        FileNotFoundError for one that is gone."""
        found = []
        with path.open("rb") as file:
            starts = self._starts(path)
            for number in range(numbers.start, min(numbers.stop, len(starts))):
                if starts[number] != NOWHERE:
                    file.seek(starts[number])
                    found.append((number, file.readline()))
        return found

    def _starts(self, path: Path) -> array[int]:
        with self._lock:
            if (known := self._known.get(path)) is None:
                known = self._known[path] = _read(path)
                if len(self._known) > KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(path)
            return known


def _read(path: Path) -> array[int]:
    starts, at = array("q"), 0
    with path.open("rb") as file:
        for line in file:
            number = lines.number(line)
            if number >= len(starts):
                starts.extend([NOWHERE] * (number + 1 - len(starts)))
            starts[number] = at
            at += len(line)
    return starts
