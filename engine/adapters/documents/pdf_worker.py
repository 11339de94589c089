"""The child that opens PDFs before they are queued: pages, passwords, and whether there is text."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pypdfium2  # type: ignore[import-untyped]
import pypdfium2.raw as pdfium  # type: ignore[import-untyped]

from engine.adapters.documents.worker import Handle, serve
from engine.errors import InvalidInput

LOOKED_AT = 16
"""Pages whose text is looked for: one may be a picture, but a text has words on one of its first pages."""

LOOK_SECONDS = 2.0
"""After so long no further page is looked at: others wait, and text is taken to be there."""


def opened(data: bytes) -> pypdfium2.PdfDocument:
    """Raises InvalidInput saying why PDFium does not open it."""
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code == pdfium.FPDF_ERR_PASSWORD:
            raise InvalidInput("The PDF is encrypted; remove its password.") from error
        raise InvalidInput(f"The PDF is damaged or cut off: {error}") from error
    return document


def prepare(setup: Mapping[str, Any]) -> Handle:
    return look


def look(request: Mapping[str, Any]) -> dict[str, Any]:
    document = opened(request["data"])
    try:
        total = len(document)
        first, last = request["first"], request["last"] or total
        if last > total:
            raise InvalidInput(f"page_range asks for pages {first} to {last}; the PDF has {total}.")
        looked_at = range(first - 1, min(last, first - 1 + LOOKED_AT))
        until = time.monotonic() + LOOK_SECONDS
        has_text = any(time.monotonic() > until or _has_text(document, number) for number in looked_at)
        return {"first": first, "last": last, "total": total, "has_text": has_text}
    finally:
        document.close()


def _has_text(document: pypdfium2.PdfDocument, number: int) -> bool:
    try:
        page = document[number]
    except pypdfium2.PdfiumError:
        return False
    text = page.get_textpage()
    found = bool(text.get_text_range().strip())
    text.close()
    page.close()
    return found


if __name__ == "__main__":
    serve(prepare)
