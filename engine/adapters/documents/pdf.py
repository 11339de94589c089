"""How many pages a PDF has, and whether there is text on them, asked of a child process.

PDFium reads what strangers send, so it never runs in this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.adapters.documents.child import Bounds, Child
from engine.adapters.documents.limits import DocumentLimits
from engine.errors import InferenceFailed, InvalidInput

BOUNDS = Bounds(memory_bytes=512 << 20, resident_bytes=256 << 20, answer_bytes=1 << 20, jobs=1000)
"""PDFium with a file of 50 MB open takes about 100 MiB."""

SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of a PDF that a request is about, counted from 1, both ends included."""

    first: int
    last: int
    total: int
    has_text: bool
    """Whether any of the first pages of the range has text that can be copied."""

    @property
    def count(self) -> int:
        return self.last - self.first + 1


class PdfReader:
    """Any thread may use it. Its process starts with the first PDF."""

    def __init__(self, limits: DocumentLimits) -> None:
        memory = max(BOUNDS.memory_bytes, limits.max_memory or 0)
        self._child = Child("engine.adapters.documents.pdf_worker", replace(BOUNDS, memory_bytes=memory))

    def pages(self, data: bytes, asked: tuple[int, int] | None) -> Pages:
        """Raises InvalidInput when the file cannot be read, is encrypted or lacks the asked pages, and
        InputTooLong when that takes more memory or time than it may."""
        first, last = asked or (1, None)
        try:
            told = self._child.call({"data": data, "first": first, "last": last}, SECONDS)
        except InferenceFailed as error:
            raise InvalidInput(f"The PDF cannot be read: {error.message}") from error
        return Pages(**told)

    def close(self) -> None:
        self._child.close()


MOST_PAGES = 1_000_000
"""That a range may reach to: no PDF has more, and the child is told by numbers that have an end."""


def page_range(extra: Mapping[str, Any]) -> tuple[int, int] | None:
    """The option `page_range`: [first, last], from 1. Raises InvalidInput."""
    asked = extra.get("page_range")
    if asked is None:
        return None
    whole = isinstance(asked, list | tuple) and len(asked) == 2 and all(type(n) is int for n in asked)
    if not whole or not 1 <= asked[0] <= asked[1] <= MOST_PAGES:
        raise InvalidInput(f"page_range is [first, last], counted from 1, at most {MOST_PAGES}.")
    return asked[0], asked[1]
