"""Lines of a file that somebody sent: however small it is packed, no more of it is held than is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from gzip import GzipFile
from typing import IO

from engine.errors import InvalidInput

MIB = 2**20

File = IO[bytes] | GzipFile

RATIO = 200
"""So many bytes may come of one that is packed; traffic packs to a tenth or a thirtieth."""
UNJUDGED = 16 * MIB
"""Up to this size no ratio counts: little of anything packs well."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bytes at most, unpacked: of the first line, of any other, and of the whole."""

    first: int
    line: int
    whole: int


def lines(file: File, packed: IO[bytes], called: str, bounds: Bounds) -> Iterator[tuple[int, bytes]]:
    """Number and line. `packed` is what `file` unpacks; the same where nothing is packed.

    Raises InvalidInput that names the line, the limit and its value.
    """
    number, whole, longest = 0, 0, bounds.first
    while line := file.readline(longest + 1):
        number += 1
        whole += len(line)
        if len(line) > longest:
            raise InvalidInput(f"{called}:{number}: a line has at most {longest // MIB} MiB here.")
        if whole > bounds.whole:
            raise InvalidInput(f"{called}:{number}: a file has at most {bounds.whole // MIB} MiB unpacked.")
        if whole > UNJUDGED and whole > RATIO * packed.tell():
            raise InvalidInput(f"{called}:{number}: a file unpacks to at most {RATIO} times its size.")
        yield number, line
        longest = bounds.line
