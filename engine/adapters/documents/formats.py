"""What a document is, by its content, and what its header says cheaply. Pure; expands nothing.

The sender's word is checked, not believed: a name that contradicts the content is refused.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
import zipfile
from dataclasses import dataclass

from engine.adapters.documents.limits import USUAL, DocumentLimits
from engine.errors import InputTooLong, InvalidInput
from engine.requests import Media

OFFICE = {"docx": "word/document.xml", "pptx": "ppt/presentation.xml", "xlsx": "xl/workbook.xml"}
"""The part without which a package is not of that format."""

TEXT_PARTS = {
    "docx": re.compile(r"word/document\.xml"),
    "xlsx": re.compile(r"xl/(worksheets/[^/]+|sharedStrings)\.xml"),
}
TEXT = ("html", "md", "csv")
SUPPORTED = ("pdf", *OFFICE, *TEXT)

NAMES = {
    "pdf": ("pdf", "application/pdf"),
    "docx": ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    "pptx": ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    "xlsx": ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    "html": ("html", "htm", "xhtml", "text/html", "application/xhtml+xml"),
    "md": ("md", "markdown", "text/markdown", "txt", "text", "text/plain"),
    "csv": ("csv", "tsv", "text/csv", "text/tab-separated-values"),
    "image": ("png", "jpg", "jpeg", "gif", "bmp", "tif", "tiff", "webp", "image"),
}
"""What senders call each: an extension, a media type, or the end of a file name."""

IMAGES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*")
HTML = re.compile(
    rb"\s*+(?:<\?xml[^>]*+>\s*+)?(?>(?:<!--(?>.*?-->)\s*+)*)<(?:!doctype\s+html|html|head|body)\b",
    re.I | re.S,
)
"""Nothing that was matched is tried again: of comments in a row there are ways without end to see one."""
TAG = re.compile(rb"\s*<[a-z][a-z0-9]*(\s[^<>]*)?>", re.I)

PACKAGE, PART = b"PK\x03\x04", b"PK\x01\x02"
"""How a zip file begins, and each part in its directory."""

SMALL = 16 << 20
"""An Office file that expands to no more than this may be as repetitive as it likes."""
PAGE_BYTES = {"docx": 8192, "xlsx": 8192, "html": 4096, "md": 4096, "csv": 4096}
"""What counts as one page of a format that has none: bytes of text, or of the XML around it."""

PDF_TAIL = 4096
"""Readers look for a PDF's end in its last bytes; one without it was cut off."""

SAMPLE = 64 << 10


@dataclass(frozen=True, slots=True)
class Document:
    """A document whose format is settled. `pages` is 0 for a PDF: only a PDF reader can tell."""

    data: bytes
    format: str
    pages: int


def read(media: Media, limits: DocumentLimits = USUAL) -> Document:
    """Raises InvalidInput saying what it is instead, or what is wrong."""
    if not media.data:
        raise InvalidInput("The document is empty: 0 bytes.")
    if media.data.startswith(PACKAGE):
        _check_parts(media.data.count(PART), limits)  # before a reader makes an object of each
    found = sniff(media.data)
    format = _agreed(found, declared(media.format), media.data)
    if format not in (*SUPPORTED, "image"):
        raise InvalidInput(f"{_EXPLAINED.get(format, format)} It must be one of: {', '.join(SUPPORTED)}.")
    if format in OFFICE:
        return Document(media.data, format, _office_pages(media.data, format, limits))
    if format == "pdf" and b"%%EOF" not in media.data[-PDF_TAIL:]:
        raise InvalidInput("The PDF is cut off: its end (%%EOF) is missing. Send the whole file.")
    if format in ("md", "csv"):
        _check_utf8(media.data)
    per_page = PAGE_BYTES.get(format)
    return Document(media.data, format, math.ceil(len(media.data) / per_page) if per_page else 0)


def declared(name: str | None) -> str | None:
    """The format that the sender's name means; None when it says nothing that we know."""
    if not name:
        return None
    plain = name.strip().lower().partition(";")[0].strip()
    ending = plain.rpartition(".")[2] if "/" not in plain else plain
    if plain.startswith("image/"):
        return "image"
    return next((format for format, names in NAMES.items() if ending in names), None)


def sniff(data: bytes) -> str:
    """A key of NAMES, or `text`, `fragment` (text that starts with a tag), or what `read` refuses."""
    start = data[:SAMPLE]
    if start.lstrip(b"\xef\xbb\xbf\0 \t\r\n").startswith(b"%PDF-"):
        return "pdf"
    if start.startswith(PACKAGE):
        return _package(data)
    if start.startswith(b"\xd0\xcf\x11\xe0"):
        return "encrypted" if "EncryptedPackage".encode("utf-16-le") in data else "ole"
    if start.startswith(IMAGES) or (start[:4] == b"RIFF" and start[8:12] == b"WEBP"):
        return "image"
    if start.startswith(b"{\\rtf"):
        return "rtf"
    wide = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if b"\0" in start and not wide:
        return "binary"
    if HTML.match(start.lstrip(codecs.BOM_UTF8)):
        return "html"
    return "fragment" if TAG.match(start) else "text"


_EXPLAINED = {
    "encrypted": "The document is encrypted; remove its password.",
    "ole": "This is an Office file of before 2007; save it in today's format.",
    "rtf": "This is an RTF file.",
    "package": "This is a zip file, but no Office document.",
    "broken": "The document is damaged or cut off: it begins as a zip file and has no directory at its end.",
    "binary": "These bytes are no document that this model knows.",
}


def _agreed(found: str, said: str | None, data: bytes) -> str:
    if found in _EXPLAINED and said != "image":
        return found
    if found in ("text", "fragment"):
        if said in TEXT:
            return said
        if said is not None:
            raise InvalidInput(f"It is called {said}, but its content is text without that format's marks.")
        return "html" if found == "fragment" else "csv" if _is_table(data) else "md"
    if said not in (None, found) and not (found == "html" and said == "md"):
        raise InvalidInput(f"It is called {said}, but its content is {_EXPLAINED.get(found, found)}.")
    return found


def _package(data: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as package:
            names = set(package.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, UnicodeDecodeError):
        return "broken"
    return next((format for format, part in OFFICE.items() if part in names), "package")


def _office_pages(data: bytes, format: str, limits: DocumentLimits) -> int:
    """Slides, or the size of the XML that holds the text, which the directory gives without expanding.

    The sizes there may be lies, but no reader expands a part beyond the size that is written.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        sizes = {part.filename: part.file_size for part in package.infolist()}
        locked = any(part.flag_bits & 1 for part in package.infolist())
        total = sum(part.file_size for part in package.infolist())
    if locked:
        raise InvalidInput(_EXPLAINED["encrypted"])
    _check_expansion(len(data), total, limits)
    if format == "pptx":
        return max(1, sum(1 for name in sizes if re.fullmatch(r"ppt/slides/slide\d+\.xml", name)))
    text = sum(size for name, size in sizes.items() if TEXT_PARTS[format].fullmatch(name))
    return max(1, math.ceil(text / PAGE_BYTES[format]))


def _check_parts(parts: int, limits: DocumentLimits) -> None:
    """Raises InputTooLong."""
    if parts > limits.max_parts:
        text = f"It has {parts} parts; the limit is {limits.max_parts} (max_parts)."
        raise InputTooLong(text, length=parts, max_length=limits.max_parts)


def _check_expansion(size: int, total: int, limits: DocumentLimits) -> None:
    """Before anything of it is expanded: raises InputTooLong for what would fill the memory."""
    if total > limits.max_expanded:
        text = f"Expanded it would be {total} bytes; the limit is {limits.max_expanded} (max_expanded)."
        raise InputTooLong(text, length=total, max_length=limits.max_expanded)
    if total > max(SMALL, size * limits.max_expansion):
        times = total // max(1, size)
        raise InputTooLong(
            f"Expanded it would be {times} times its {size} bytes; the limit is {limits.max_expansion} times "
            "(max_expansion).",
            length=times,
            max_length=limits.max_expansion,
        )


def _check_utf8(data: bytes) -> None:
    """Looks at the start only: text is not read twice."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data[:SAMPLE])
    except UnicodeDecodeError as error:
        raise InvalidInput(f"The text is not UTF-8 (byte {error.start}); convert it first.") from None


def _is_table(data: bytes) -> bool:
    """At least three lines, all of the same number of fields, and more than one."""
    lines = data[:SAMPLE].decode("utf-8", "replace").splitlines()[:20]
    for delimiter in ",;\t":
        widths = {len(row) for row in csv.reader(lines, delimiter=delimiter) if row}
        if len(lines) > 2 and len(widths) == 1 and widths.pop() > 1:
            return True
    return False
