"""What docling makes of a document: office files, web pages, text, and PDFs that hold their text.

Runs in a child process only (`document_worker`). Of a PDF docling's model-free pipeline gives lines;
what they make together is told from where they stand.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from typing import Any

from docling.backend.abstract_backend import AbstractDocumentBackend
from docling.backend.csv_backend import CsvDocumentBackend
from docling.backend.html_backend import HTMLDocumentBackend
from docling.backend.md_backend import MarkdownDocumentBackend
from docling.backend.msexcel_backend import MsExcelDocumentBackend
from docling.backend.mspowerpoint_backend import MsPowerpointDocumentBackend
from docling.backend.msword_backend import MsWordDocumentBackend
from docling.backend.pypdfium2_backend import PyPdfiumDocumentBackend
from docling.datamodel.base_models import InputFormat
from docling.datamodel.document import InputDocument
from docling.datamodel.pipeline_options import NativePdfPipelineOptions
from docling.datamodel.settings import DocumentLimits
from docling.exceptions import ConversionError
from docling.pipeline.native_pdf_pipeline import NativePdfPipeline
from docling_core.types.doc.base import BoundingBox, CoordOrigin
from docling_core.types.doc.common.reference import ProvenanceItem
from docling_core.types.doc.document import DoclingDocument
from docling_core.types.doc.items.table.table_data import TableCell, TableData
from docling_core.types.doc.items.text import TextItem
from docling_core.types.doc.labels import DocItemLabel
from lxml.etree import LxmlError  # type: ignore[import-untyped]

from engine.adapters.documents import depth
from engine.adapters.documents.blocks import ITEM, NUMBERED, Block, Line
from engine.adapters.documents.reading import body_size, flow, pdf_line
from engine.errors import InputTooLong, InvalidInput

BACKENDS: dict[str, type[AbstractDocumentBackend]] = {
    "docx": MsWordDocumentBackend,
    "pptx": MsPowerpointDocumentBackend,
    "xlsx": MsExcelDocumentBackend,
    "html": HTMLDocumentBackend,
    "md": MarkdownDocumentBackend,
    "csv": CsvDocumentBackend,
    "pdf": PyPdfiumDocumentBackend,
}
DAMAGED = (
    ConversionError,
    LxmlError,
    LookupError,
    OSError,
    UnicodeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What docling and the libraries below it raise on files that are not what they seem."""


def convert(
    request: Mapping[str, Any], read_pdf: Callable[[InputDocument], DoclingDocument] | None = None
) -> dict[str, Any]:
    """Raises InvalidInput when the document is not what it seems."""
    format = request["format"]
    if format in depth.COUNTED:
        depth.check(request["data"], format)
    try:
        document = _pdf(request, read_pdf) if format == "pdf" else _simple(request)
    except RecursionError:
        raise InputTooLong(f"The {format} is nested too deeply to be read (max_depth).") from None
    except DAMAGED as error:
        raise InvalidInput(f"The {format} cannot be read: {_reason(error)}") from error
    told: dict[str, Any] = {"markdown": document.export_to_markdown(), "pages": max(1, len(document.pages))}
    output = request["output"]
    if output == "json":
        told["json"] = document.export_to_dict()
    elif output == "html":
        told["html"] = document.export_to_html()
    elif output == "doctags":
        told["doctags"] = document.export_to_doctags()
    elif output == "text":
        told["text"] = document.export_to_text()
    return told


def _simple(request: Mapping[str, Any]) -> DoclingDocument:
    backend = _opened(request)._backend
    try:
        document: DoclingDocument = backend.convert()  # type: ignore[attr-defined]
        return document
    finally:
        backend.unload()  # type: ignore[no-untyped-call]


def _opened(request: Mapping[str, Any], limits: DocumentLimits | None = None) -> InputDocument:
    format = request["format"]
    opened = InputDocument(
        path_or_stream=BytesIO(request["data"]),
        format=InputFormat(format),
        backend=BACKENDS[format],
        filename=f"document.{format}",
        limits=limits,
    )
    if not opened.valid:
        raise InvalidInput(f"The {format} is damaged or cut off; no reader can open it.")
    return opened


def _pdf(
    request: Mapping[str, Any], read_pdf: Callable[[InputDocument], DoclingDocument] | None
) -> DoclingDocument:
    """By `read_pdf`, where the entry has a pipeline of its own."""
    limits = DocumentLimits(page_range=(request["first"], request["last"]))
    if read_pdf is not None:
        return read_pdf(_opened(request, limits))
    options = NativePdfPipelineOptions(
        generate_page_images=False, generate_picture_images=False, parser_threads=1
    )
    try:
        read = NativePdfPipeline(options).execute(_opened(request, limits), raises_on_error=True).document
    except RuntimeError as error:
        raise InvalidInput(f"The PDF cannot be read: {_reason(error.__cause__ or error)}") from error
    made = DoclingDocument(name="document", origin=read.origin)
    for number, page in read.pages.items():
        made.add_page(page_no=number, size=page.size)
        items = [item for item in read.texts if item.prov and item.prov[0].page_no == number]
        lines = [_line(item, page.size.height) for item in items]
        for block in flow(lines, body_size(lines)):
            _add(made, block, partial(_where, block, number))
    return made


def _line(item: TextItem, height: float) -> Line:
    box = item.prov[0].bbox.to_top_left_origin(height)
    return pdf_line(item.text, (box.l, box.t, box.r, box.b))


def _add(document: DoclingDocument, block: Block, where: partial[ProvenanceItem]) -> None:
    first = block.rows[0][0]
    if block.kind == "heading" and block.level == 1:
        document.add_title(first, prov=where())
    elif block.kind == "heading":
        document.add_heading(first, level=block.level - 1, prov=where())
    elif block.kind == "table":
        document.add_table(_data(block), prov=where())
    elif block.kind in ("list", "pairs"):
        group = document.add_list_group()
        for row in block.rows:
            text = " ".join(filter(None, row))
            number = NUMBERED.match(text)
            document.add_list_item(
                ITEM.sub("", text),
                enumerated=bool(number),
                marker=number.group().strip() if number else None,
                parent=group,
                prov=where(),
            )
    else:
        document.add_text(DocItemLabel.TEXT, first, prov=where())


def _data(block: Block) -> TableData:
    cells = [
        TableCell(
            text=text,
            start_row_offset_idx=row,
            end_row_offset_idx=row + 1,
            start_col_offset_idx=column,
            end_col_offset_idx=column + 1,
            column_header=row == 0,
        )
        for row, texts in enumerate(block.rows)
        for column, text in enumerate(texts)
    ]
    return TableData(table_cells=cells, num_rows=len(block.rows), num_cols=len(block.rows[0]))


def _where(block: Block, page: int) -> ProvenanceItem:
    left, top, right, bottom = block.box
    box = BoundingBox(l=left, t=top, r=right, b=bottom, coord_origin=CoordOrigin.TOPLEFT)
    return ProvenanceItem(page_no=page, bbox=box, charspan=(0, len(block.text)))


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
