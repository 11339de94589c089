from __future__ import annotations

import io
import zipfile

import pytest

from engine.adapters.documents.formats import declared, read
from engine.adapters.documents.limits import DocumentLimits
from engine.errors import InputTooLong, InvalidInput
from engine.requests import Media
from tests.engine.adapters.papers import CSV, HTML, MARKDOWN, policy_pdf, sheet, slides, word

PAGE = HTML.format(more="").encode()


def package(**parts: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in parts.items():
            made.writestr(name.replace("__", "/").replace("_", "."), data)
    return out.getvalue()


@pytest.mark.parametrize("say", [True, False])
@pytest.mark.parametrize(
    ("data", "format"),
    [
        (word(), "docx"),
        (slides(1), "pptx"),
        (sheet(), "xlsx"),
        (policy_pdf(1), "pdf"),
        (PAGE, "html"),
        (b"\xef\xbb\xbf  <!-- made by hand --> <HTML><body>x</body></HTML>", "html"),
        (b"<?xml version='1.0'?><!DOCTYPE html><html></html>", "html"),
        (MARKDOWN.encode(), "md"),
        ("Straße, naïve\n".encode(), "md"),
        (CSV.encode(), "csv"),
        (b"a;b\n1;2\n3;4\n", "csv"),
    ],
)
def test_the_format_is_told_from_the_content(data: bytes, format: str, say: bool) -> None:
    assert read(Media(data, format if say else None)).format == format


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("pdf", "pdf"),
        (".PDF", "pdf"),
        ("claims/2024.final.docx", None),
        ("2024.final.docx", "docx"),
        ("text/html; charset=utf-8", "html"),
        ("application/octet-stream", None),
        ("image/png", "image"),
        ("", None),
        (None, None),
    ],
)
def test_what_a_senders_name_means(name: str | None, format: str | None) -> None:
    assert declared(name) == format


@pytest.mark.parametrize(
    ("data", "name", "words"),
    [
        (b"", "pdf", "empty: 0 bytes"),
        (PAGE, "pdf", r"called pdf.*html"),
        (PAGE, "document.pdf", r"called pdf.*html"),
        (policy_pdf(1), "html", r"called html.*pdf"),
        (word(), "xlsx", r"called xlsx.*docx"),
        (b"just words", "pdf", r"called pdf.*text"),
        (b"just words", "docx", r"called docx.*text"),
        (policy_pdf(1)[:300], "pdf", "cut off"),
        (word()[:5000], "docx", "cut off"),
        (word()[:5000], None, "cut off"),
        (package(mimetype=b"x"), None, "no Office document"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "doc", "before 2007"),
        (b"\xd0\xcf\x11\xe0" + "EncryptedPackage".encode("utf-16-le"), "docx", "encrypted"),
        (b"{\\rtf1 hello}", "rtf", "RTF"),
        (bytes(range(256)), None, "no document"),
        (b"caf\xe9 au lait", "md", "not UTF-8 .byte 3"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, name: str | None, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        read(Media(data, name))


@pytest.mark.parametrize(
    ("data", "format"),
    [
        (b"<!---->" * 9000 + b"x", "md"),
        (b"<!-- a -->\n<!-- b --><!-- <html> --><p>x</p>", "md"),
        (b"<!-- a -->\n<!-- b -->" * 100 + b"<body>x</body>", "html"),
        (b"<!-- never closed <html>" * 2000, "md"),
        (b"<a " * 20000, "md"),
    ],
)
def test_what_begins_like_a_page_is_told_without_trying_every_way_to_read_it(
    data: bytes, format: str
) -> None:
    """A pattern that tries again holds the interpreter, and so the whole server, for as long as it likes."""
    assert read(Media(data)).format == format


def test_a_zip_bomb_is_refused_by_its_directory_alone() -> None:
    bomb = bytearray(package(word__document_xml=b"<x/>", word__media__a_bin=bytes(1 << 20)))
    said = bomb.index((1 << 20).to_bytes(4, "little"), bomb.index(b"PK\x01\x02"))
    bomb[said : said + 4] = (512 << 20).to_bytes(4, "little")

    with pytest.raises(InputTooLong, match=r"limit is 536870912 .max_expanded") as told:
        read(Media(bytes(bomb), "docx"))
    assert told.value.details == {"length": (512 << 20) + 4, "max_length": 512 << 20}


def test_a_package_that_grows_too_much_is_refused_before_it_is_expanded() -> None:
    zeros = package(word__document_xml=b"<x/>", word__media__a_bin=bytes(17 << 20))
    wide = DocumentLimits(max_expansion=100_000)

    with pytest.raises(InputTooLong, match=r"the limit is 200 times .max_expansion"):
        read(Media(zeros, "docx"))
    assert read(Media(zeros, "docx"), wide).format == "docx"


def test_a_package_of_too_many_parts_is_refused() -> None:
    parts = {f"word__p{n}_xml": b"" for n in range(20)}

    with pytest.raises(InputTooLong, match=r"21 parts; the limit is 20 .max_parts"):
        read(Media(package(word__document_xml=b"<x/>", **parts), "docx"), DocumentLimits(max_parts=20))


def test_a_directory_of_very_many_parts_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = b"PK\x01\x02" + bytes(42)
    directory = entry * 50_000
    end = (
        b"PK\x05\x06"
        + bytes(8)
        + len(directory).to_bytes(4, "little")
        + (30).to_bytes(4, "little")
        + bytes(2)
    )
    monkeypatch.delattr(zipfile, "ZipFile")

    with pytest.raises(InputTooLong, match=r"50000 parts; the limit is 10000"):
        read(Media(b"PK\x03\x04" + bytes(26) + directory + end))


def test_a_locked_part_is_told_as_encryption() -> None:
    locked = bytearray(word())
    entry = locked.rindex(b"PK\x01\x02")
    locked[entry + 8] |= 1

    with pytest.raises(InvalidInput, match="encrypted"):
        read(Media(bytes(locked), "docx"))


def test_the_cost_is_slides_or_text_by_the_page() -> None:
    assert read(Media(slides(3))).pages == 3
    assert read(Media(b"x" * 4097, "md")).pages == 2
    assert read(Media(package(word__document_xml=bytes(100 << 10)))).pages == 13
    assert read(Media(package(xl__workbook_xml=b"", xl__worksheets__s1_xml=bytes(50 << 10)))).pages == 7
    assert read(Media(policy_pdf(2))).pages == 0
