from __future__ import annotations

import http.server
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import psutil
import pytest
from docling.datamodel.base_models import DocumentStream, InputFormat
from docling.document_converter import DocumentConverter

from engine import catalog
from engine.adapters import family
from engine.adapters.document import FAMILY, DocumentModel, DocumentPreparer
from engine.adapters.documents import pdf_worker
from engine.adapters.family import Prepared
from engine.catalog import ModelSpec
from engine.errors import EngineError, InferenceFailed, InputTooLong, InvalidInput
from engine.requests import Extracted, ExtractOptions, Item, Media, Task, Usage
from tests.engine.adapters import papers
from tests.engine.adapters.papers import (
    CSV,
    HTML,
    MARKDOWN,
    encrypted_pdf,
    pdf,
    policy_pdf,
    sheet,
    slides,
    word,
)
from tests.engine.adapters.test_formats import package

SPEC = catalog.load([Path(__file__).parents[3] / "catalog"]).models["docling-project/docling"]
PAGE = HTML.format(more="").encode()
LIMITS = [["Item", "Limit"], ["Building", "$250,000"], ["Contents", "$100,000"]]


@pytest.fixture(scope="module")
def model() -> Iterator[DocumentModel]:
    made = FAMILY.load(SPEC, Path(), "cpu")
    yield made
    made.unload()


@pytest.fixture(scope="module")
def preparer() -> DocumentPreparer:
    return FAMILY.preparer(SPEC, Path())


def prepared(
    preparer: DocumentPreparer, data: bytes, name: str | None = None, **extra: Any
) -> Prepared | EngineError:
    options = ExtractOptions(extra=extra)
    (one,) = preparer.prepare(Task.EXTRACT, [Item(document=Media(data, name))], options)
    return one


def good(preparer: DocumentPreparer, data: bytes, name: str | None = None, **extra: Any) -> Prepared:
    one = prepared(preparer, data, name, **extra)
    assert isinstance(one, Prepared), one
    return one


def read(model: DocumentModel, preparer: DocumentPreparer, data: bytes, **extra: Any) -> dict[str, Any]:
    (output,) = model.run([good(preparer, data, **extra)])
    assert isinstance(output, Extracted), output
    return dict(output.data)


def cells(markdown: str) -> list[list[str]]:
    rows = [line.strip("|").split("|") for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows if not set("".join(row)) <= set("-: ")]


def test_the_catalogue_names_this_family() -> None:
    assert family.family(SPEC.family) is FAMILY


def test_a_word_document_keeps_headings_lists_and_tables(
    model: DocumentModel, preparer: DocumentPreparer
) -> None:
    data = read(model, preparer, word())

    assert (data["format"], data["pages"]) == ("docx", 1)
    assert "# Flood policy\n" in data["markdown"]
    assert "## Cover\n" in data["markdown"]
    assert "The insurer pays for direct physical loss." in data["markdown"]
    assert "- Buildings\n- Contents" in data["markdown"]
    assert cells(data["markdown"]) == LIMITS


def test_office_files_are_read_as_docling_alone_reads_them(
    model: DocumentModel, preparer: DocumentPreparer, compared: Callable[..., None]
) -> None:
    files = {"a.docx": word(), "a.pptx": slides(2), "a.xlsx": sheet()}
    docling = DocumentConverter(allowed_formats=[InputFormat.DOCX, InputFormat.PPTX, InputFormat.XLSX])
    expected = [
        docling.convert(DocumentStream(name=name, stream=BytesIO(data))).document.export_to_markdown()
        for name, data in files.items()
    ]

    ours = [read(model, preparer, data)["markdown"] for data in files.values()]

    compared("document", "docling-project/docling", "docling", ours, expected, weights="real")
    assert [text.strip() for text in ours] == [text.strip() for text in expected]


def test_slides_sheets_and_csv(model: DocumentModel, preparer: DocumentPreparer) -> None:
    shown = read(model, preparer, slides(2))
    assert (shown["format"], shown["pages"]) == ("pptx", 2)
    assert shown["markdown"] == "# Slide 1\n\n- One\n- Two\n\n# Slide 2\n\n- One\n- Two"
    assert cells(read(model, preparer, sheet())["markdown"]) == LIMITS
    assert cells(read(model, preparer, CSV.encode())["markdown"]) == [
        ["item", "amount"],
        ["Carpets", "3200"],
        ["Boiler", "2100"],
    ]


@pytest.mark.parametrize("data", [PAGE, MARKDOWN.encode()])
def test_a_web_page_and_markdown(model: DocumentModel, preparer: DocumentPreparer, data: bytes) -> None:
    markdown = read(model, preparer, data)["markdown"]

    assert markdown.startswith("# Policy\n\nThe insurer pays")
    assert "- Buildings\n- Contents" in markdown
    assert len(cells(markdown)) == 2


def test_a_pdf_with_text_gets_its_structure_from_where_lines_stand(
    model: DocumentModel, preparer: DocumentPreparer
) -> None:
    data = read(model, preparer, policy_pdf(1))

    head, _, table = data["markdown"].partition("\n\n|")
    assert (data["format"], data["pages"]) == ("pdf", 1)
    assert head == (
        "# Flood policy 1\n\n## 1. Cover\n\n"
        "The insurer pays for direct physical loss by or from flood to the insured property, "
        "up to the limit below.\n\n"
        "A second paragraph stands on a line of its own.\n\n- Buildings\n- Contents"
    )
    assert cells("|" + table) == LIMITS


def test_a_range_of_pages_is_all_that_is_read_and_paid(
    model: DocumentModel, preparer: DocumentPreparer
) -> None:
    whole, part = good(preparer, policy_pdf(4)), good(preparer, policy_pdf(4), page_range=[2, 3])

    assert (whole.cost, part.cost, part.usage) == (4, 2, Usage(pages=2))
    markdown = read(model, preparer, policy_pdf(4), page_range=[2, 3])["markdown"]
    assert [n for n in "1234" if f"Flood policy {n}" in markdown] == ["2", "3"]


@pytest.mark.parametrize("data", [word(), policy_pdf(1)])
def test_the_asked_output_comes_beside_the_markdown(
    model: DocumentModel, preparer: DocumentPreparer, data: bytes
) -> None:
    asked = {name: read(model, preparer, data, output=name) for name in ("json", "html", "doctags", "text")}

    assert asked["json"]["json"]["schema_name"] == "DoclingDocument"
    assert "<table>" in asked["html"]["html"]
    assert "<doctag>" in asked["doctags"]["doctags"]
    assert "Building" in asked["text"]["text"]
    assert all("$250,000" in data["markdown"] for data in asked.values())


@pytest.mark.parametrize(
    ("data", "name", "words"),
    [
        (b"", "pdf", "0 bytes"),
        (PAGE, "pdf", r"called pdf.*html"),
        (policy_pdf(1)[:900], "pdf", "cut off"),
        (b"%PDF-1.7 nothing here %%EOF", "pdf", "damaged"),
        (pdf([]), "pdf", "damaged"),
        (encrypted_pdf(), "pdf", "password"),
        (papers.scanned_pdf(papers.claim()), "pdf", r"no text; use serai/page-markdown"),
        (papers.png(papers.claim()), "png", "use serai/page-markdown"),
        (word()[:9000], "docx", "cut off"),
    ],
)
def test_bad_documents_are_refused_before_they_are_queued(
    preparer: DocumentPreparer, data: bytes, name: str, words: str
) -> None:
    error = prepared(preparer, data, name)

    assert isinstance(error, InvalidInput)
    assert re.search(words, error.message), error.message


def test_a_bad_item_leaves_its_neighbours_alone(preparer: DocumentPreparer) -> None:
    items = [Item(document=Media(PAGE)), Item(text="words"), Item(document=Media(word()))]

    first, second, third = preparer.prepare(Task.EXTRACT, items, ExtractOptions())

    assert isinstance(first, Prepared)
    assert isinstance(second, InvalidInput)
    assert isinstance(third, Prepared)


@pytest.mark.parametrize(
    "options",
    [
        ExtractOptions(extra={"output": "docx"}),
        ExtractOptions(extra={"page_range": [0, 2]}),
        ExtractOptions(extra={"page_range": [3, 2]}),
        ExtractOptions(extra={"page_range": [1, 2**64]}),
        ExtractOptions(extra={"page_range": "1-2"}),
        ExtractOptions(labels=("person",)),
    ],
)
def test_options_that_mean_nothing_are_refused(preparer: DocumentPreparer, options: ExtractOptions) -> None:
    with pytest.raises(InvalidInput):
        preparer.prepare(Task.EXTRACT, [Item(document=Media(PAGE))], options)


def test_a_range_is_only_for_pages_that_there_are(preparer: DocumentPreparer) -> None:
    beyond = prepared(preparer, policy_pdf(2), page_range=[2, 5])
    office = prepared(preparer, word(), page_range=[1, 2])

    assert isinstance(beyond, InvalidInput)
    assert "the PDF has 2" in beyond.message
    assert isinstance(office, InvalidInput)


def test_a_document_of_too_many_pages_or_bytes_names_the_limit() -> None:
    small = SPEC.model_copy(
        update={"limits": SPEC.limits.model_copy(update={"max_batch_cost": 2, "max_item_bytes": 60_000})}
    )
    strict = FAMILY.preparer(small, Path())

    pages, large = prepared(strict, policy_pdf(3)), prepared(strict, b"x" * 60_001, "md")

    assert isinstance(pages, InputTooLong)
    assert "takes 2" in pages.message
    assert isinstance(large, InputTooLong)
    assert "takes 60000" in large.message


def test_content_that_only_docling_finds_broken_fails_alone(
    model: DocumentModel, preparer: DocumentPreparer
) -> None:
    broken = word().replace(b"PK\x03\x04", b"PK\x03\x03", 3)[4:]
    hollow = Prepared(1, {"format": "docx", "data": broken, "output": "markdown"}, len(broken))

    bad, fine = model.run([hollow, good(preparer, PAGE)])

    assert isinstance(bad, InvalidInput)
    assert isinstance(fine, Extracted)


def test_a_child_that_is_killed_fails_one_document(model: DocumentModel, preparer: DocumentPreparer) -> None:
    long = "".join(f"<h2>{n}</h2><p>{'words ' * 50}</p>" for n in range(1000))
    job = good(preparer, HTML.format(more=long).encode())
    pid = model.child.pid
    assert pid is not None
    killer = threading.Timer(0.1, os.kill, (pid, signal.SIGKILL))
    killer.start()

    killed, fine = model.run([job, good(preparer, PAGE)])

    killer.join()
    assert isinstance(killed, InferenceFailed)
    assert isinstance(fine, Extracted)
    assert model.child.pid != pid


def test_a_page_fetches_nothing_and_reads_no_local_file(
    model: DocumentModel, preparer: DocumentPreparer
) -> None:
    asked: list[str] = []

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)

    with http.server.HTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        at = f"http://127.0.0.1:{server.server_port}"
        more = (
            f'<img src="{at}/a.png"><link rel="stylesheet" href="{at}/b.css"><img src="file:///etc/passwd">'
        )
        markdown = read(model, preparer, HTML.format(more=more).encode())["markdown"]
        server.shutdown()

    assert asked == []
    assert "root:" not in markdown


def test_twenty_conversions_leave_this_process_as_it_was(
    model: DocumentModel, preparer: DocumentPreparer
) -> None:
    text = HTML.format(more=f"<p>{'words and more words ' * 5000}</p>" * 5).encode()

    def convert() -> int:
        read(model, preparer, text)
        return int(psutil.Process().memory_info().rss)

    before = [convert() for _ in range(20)][-1]  # by then the allocator has what it wants
    after = [convert() for _ in range(20)][-1]

    assert after - before < 10 * len(text), "of twenty"


def test_the_child_is_as_large_as_its_footprint_says(
    model: DocumentModel, preparer: DocumentPreparer
) -> None:
    read(model, preparer, word())

    footprint = FAMILY.footprint(SPEC, Path())
    resident = psutil.Process(model.child.pid).memory_info().rss

    assert 0.5 * footprint.weights_bytes < resident < footprint.weights_bytes + footprint.workspace(1)


def test_the_specs_own_options_are_defaults(model: DocumentModel) -> None:
    spec: ModelSpec = SPEC.model_copy(update={"options": {"output": "text"}})

    assert "text" in read(model, FAMILY.preparer(spec, Path()), PAGE)


DEEP = {
    "html": b"<html><body>" + b"<div>" * 3000 + b"x" + b"</div>" * 3000 + b"</body></html>",
    "md": b"> " * 30 + b"x",
}


@pytest.mark.parametrize("format", ["html", "md"])
def test_what_is_nested_too_deeply_is_refused_before_it_is_read(
    model: DocumentModel, preparer: DocumentPreparer, format: str
) -> None:
    (output,) = model.run([good(preparer, DEEP[format], format)])

    assert isinstance(output, InputTooLong) and "(max_depth)" in output.message
    assert output.details["length"] > output.details["max_length"]


def test_an_entry_says_how_long_a_document_may_take_and_how_large_it_may_get() -> None:
    options = {"max_seconds": "0.05s", "max_answer": "1MiB", "max_expanded": "2MiB"}
    spec = SPEC.model_copy(update={"options": {**SPEC.options, **options}})
    preparer, model = FAMILY.preparer(spec, Path()), FAMILY.load(spec, Path(), "cpu")
    slow = good(preparer, b"# a\n\n" * 20_000, "md")

    (late,) = model.run([slow])
    model.unload()
    large = prepared(preparer, package(word__document_xml=bytes(3 << 20)), "docx")

    assert isinstance(late, InputTooLong) and late.details == {"max_seconds": 0.05}
    assert isinstance(large, InputTooLong) and large.details["max_length"] == 2 << 20


def test_a_callers_options_do_not_move_the_limits() -> None:
    spec = SPEC.model_copy(update={"options": {**SPEC.options, "max_expanded": "2MiB"}})
    big = package(word__document_xml=bytes(3 << 20))

    refused = prepared(FAMILY.preparer(spec, Path()), big, "docx", max_expanded="1GiB")

    assert isinstance(refused, InputTooLong)


def test_a_document_that_nobody_waits_for_is_not_begun_and_its_neighbours_are(
    model: DocumentModel, preparer: DocumentPreparer
) -> None:
    jobs = [good(preparer, MARKDOWN.encode(), "md") for _ in range(3)]
    pid = model.child.pid

    gone, *others = model.run_while(jobs, [lambda: False, lambda: True, lambda: True])

    assert isinstance(gone, EngineError)
    assert all(isinstance(other, Extracted) for other in others)
    assert model.child.pid == pid


def test_sixty_conversions_leave_the_memory_of_server_and_child_flat(
    model: DocumentModel, preparer: DocumentPreparer
) -> None:
    def held() -> int:
        assert model.child.pid is not None
        return psutil.Process().memory_info().rss + psutil.Process(model.child.pid).memory_info().rss

    kinds = [word(), sheet(), PAGE, MARKDOWN.encode()]
    for data in kinds * 5:
        read(model, preparer, data)
    before = held()
    for data in kinds * 10:
        read(model, preparer, data)

    assert held() - before < 24 << 20


def test_a_pdf_that_is_slow_to_look_at_is_looked_at_for_so_long_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others wait for their pages to be counted."""
    asked = {"data": papers.scanned_pdf(papers.claim(), papers.claim()), "first": 1, "last": None}
    told = pdf_worker.look(asked)
    monkeypatch.setattr(pdf_worker, "LOOK_SECONDS", -1.0)

    assert told == {"first": 1, "last": 2, "total": 2, "has_text": False}
    assert pdf_worker.look(asked) == {**told, "has_text": True}
