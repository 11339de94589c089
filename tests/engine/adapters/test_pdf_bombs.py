"""PDFs that are small on disk and fill the memory of whoever opens them."""

from __future__ import annotations

import zlib
from pathlib import Path

from engine.adapters.document import FAMILY
from engine.adapters.documents.pdf import BOUNDS
from engine.errors import InputTooLong
from engine.requests import ExtractOptions, Item, Media, Task
from tests.engine.adapters.papers import drawn_pdf, policy_pdf
from tests.engine.adapters.test_document import SPEC


def bomb() -> bytes:
    """Sixty million bytes of states that are kept and never left, in 59 KB."""
    packing = zlib.compressobj(9)
    drawn = b"".join(packing.compress(b"q " * 500_000) for _ in range(60)) + packing.flush()
    return drawn_pdf([drawn], b"/Filter /FlateDecode")


def test_a_pdf_that_exhausts_its_reader_is_told_the_limit_and_the_next_is_read() -> None:
    """PDFium aborts without a word."""
    preparer = FAMILY.preparer(SPEC, Path())
    items = [Item(document=Media(data, "pdf")) for data in (bomb(), policy_pdf(1))]

    full, good = preparer.prepare(Task.EXTRACT, items, ExtractOptions())

    assert isinstance(full, InputTooLong) and full.details == {"max_memory": BOUNDS.memory_bytes}
    assert "512 MiB" in full.message and "max_memory" in full.message
    assert not isinstance(good, Exception)
