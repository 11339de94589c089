"""The child that reads pages: layout, tables and text, each by its own small ONNX model.

The libraries' own code runs the models (rapid-layout, rapid-table, rapidocr); what is made of their
findings is ours (`layout`). One thread: ONNX Runtime's own threads would fight with the server's slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import pypdfium2  # type: ignore[import-untyped]
from numpy.typing import NDArray
from rapid_layout import RapidLayout  # type: ignore[import-untyped]
from rapid_table.table_matcher import TableMatch  # type: ignore[import-untyped]
from rapid_table.table_structure import TableStructurer  # type: ignore[import-untyped]
from rapidocr import RapidOCR
from rapidocr.utils.output import RapidOCROutput

from engine.adapters.documents import layout
from engine.adapters.documents.blocks import Block, Box, Line, markdown
from engine.adapters.documents.layout import Cell, Region
from engine.adapters.documents.pdf_worker import opened
from engine.adapters.documents.reading import pdf_line
from engine.adapters.documents.worker import Handle, serve
from engine.adapters.preparing import images
from engine.errors import InvalidInput
from engine.requests import Media

Pixels = NDArray[np.uint8]  # (height, width, 3), BGR

LONG_SIDE = 2000
"""Pixels. More only makes text detection slower: body text of A4 is 20 pixels high then."""
SHORT_SIDE = 736
"""A smaller picture is enlarged towards this, as PP-OCR's detector wants letters of some size."""
MOST_ENLARGED = 3.0
PDF_DPI = 200
MIN_SCORE = 0.4
"""Of a region of the layout. Lower than the library's 0.5: what is no region is read anyway."""
TABLE_SIDE = 488
"""SLANet-plus sees a table in a square of so many pixels."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page to read. `lines` where the file itself has its text, None where it is a picture."""

    pixels: Pixels
    lines: list[Line] | None = None


class Reader:
    """The loaded models."""

    def __init__(self, setup: Mapping[str, str]) -> None:
        cv2.setNumThreads(1)
        threads = {"intra_op_num_threads": 1, "inter_op_num_threads": 1}
        self._ocr = RapidOCR(
            params={
                **{f"EngineConfig.onnxruntime.{name}": value for name, value in threads.items()},
                "Global.log_level": "error",
                "Global.max_side_len": LONG_SIDE,
                # The library would enlarge the short side without a limit: a strip of 640 x 80 by nine.
                "Det.limit_type": "max",
                "Det.limit_side_len": LONG_SIDE,
                # One line at a time: a batch pads all its lines to the longest, and costs memory.
                "Rec.rec_batch_num": 1,
                "Det.model_path": setup["det"],
                "Rec.model_path": setup["rec"],
                "Cls.model_path": setup["cls"],
            }
        )
        self._layout = RapidLayout(
            model_dir_or_path=setup["layout"], conf_thresh=MIN_SCORE, engine_cfg=threads
        )
        self._tables = TableStructurer({"model_path": setup["table"], **threads})
        self._spans = TableMatch()
        self._touch()

    def read(self, page: Page) -> tuple[list[Line], list[Block]]:
        """Lines and blocks, in pixels of the page as it was given."""
        lines = self.lines(page.pixels) if page.lines is None else page.lines
        found = self._layout(page.pixels)
        regions = [
            Region(label, _box(np.asarray(box)), float(score))
            for label, box, score in zip(found.class_names, found.boxes, found.scores, strict=True)
        ]
        return lines, layout.arrange(lines, regions, lambda box: self.cells(page.pixels, box))

    def lines(self, pixels: Pixels) -> list[Line]:
        scale = _scale(pixels)
        if scale != 1.0:
            method = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
            pixels = cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=method).astype(np.uint8)
        found = self._ocr(pixels)
        if not isinstance(found, RapidOCROutput) or not found.txts or not found.scores:
            return []  # where there is no text, it answers with whatever step came last
        corners = np.asarray(found.boxes, np.float64) / scale  # (lines, 4, 2)
        return [
            Line(text, _box(four.reshape(8)), float(score))
            for text, four, score in zip(found.txts, corners, found.scores, strict=True)
        ]

    def cells(self, pixels: Pixels, box: Box) -> list[Cell]:
        """What the table model sees in a part of the page."""
        height, width = pixels.shape[:2]
        left, top = max(0, math.floor(box[0])), max(0, math.floor(box[1]))
        part = pixels[top : min(height, math.ceil(box[3])), left : min(width, math.ceil(box[2]))]
        if min(part.shape[:2]) < 8:
            return []
        tokens, corners, _ = self._tables(part.copy())
        places = self._spans.decode_logic_points(tokens)
        # Boxes come as shares of the padded square, multiplied by the sides of the part.
        longer = max(part.shape[:2])
        scales = np.tile([longer / part.shape[1], longer / part.shape[0]], 4)
        return [
            Cell(place[0], place[2], _moved(_box(np.asarray(four) * scales), left, top))
            for place, four in zip(places, corners, strict=False)
        ]

    def _touch(self) -> None:
        """Reads every byte of the weights, which the libraries leave until there is text to read."""
        page = Page(np.full((200, 400, 3), 255, np.uint8))
        cv2.putText(page.pixels, "Serai", (40, 120), cv2.FONT_HERSHEY_SIMPLEX, 3, (0, 0, 0), 6)
        assert self.read(page)[0], "the models read what was drawn for them"
        self.cells(page.pixels, (0, 0, 400, 200))


def prepare(setup: Mapping[str, Any]) -> Handle:
    reader = Reader(setup)

    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        parts, lines, blocks = [], [], []
        for number, page in _pages(request):
            read, found = reader.read(page)
            parts.append(markdown(found))
            lines += [_told_line(line, number) for line in read]
            blocks += [_told_block(block, number) for block in found]
        text = "\n\n".join(filter(None, parts))
        return {"markdown": text, "pages": len(parts), "lines": lines, "blocks": blocks}

    return answer


def _pages(request: Mapping[str, Any]) -> Iterator[tuple[int, Page]]:
    """Pages with their numbers, from 1; one at a time, for each is large."""
    if request["format"] == "pdf":
        document = opened(request["data"])
        try:
            for number in range(request["first"], request["last"] + 1):
                yield number, _pdf_page(document, number)
        finally:
            document.close()
        return
    for number, data in enumerate(request["images"], 1):
        yield number, Page(np.asarray(images.decode(Media(data)))[:, :, ::-1].copy())


def _pdf_page(document: pypdfium2.PdfDocument, number: int) -> Page:
    try:
        page = document[number - 1]
    except pypdfium2.PdfiumError as error:
        raise InvalidInput(f"Page {number} of the PDF is damaged: {error}") from error
    try:
        scale = min(PDF_DPI / 72, LONG_SIDE / max(1.0, *page.get_size()))
        pixels = page.render(scale=scale, rev_byteorder=False).to_numpy()[:, :, :3].copy()
        return Page(pixels, _pdf_lines(page, scale))
    finally:
        page.close()


def _pdf_lines(page: pypdfium2.PdfPage, scale: float) -> list[Line] | None:
    """The text that the page itself holds. A turned page is read as a picture: PDFium gives its text's
    boxes as they were before."""
    text = page.get_textpage()
    try:
        if page.get_rotation() or not text.get_text_range().strip():
            return None
        left, _, _, top = page.get_bbox()
        pieces = []
        for number in range(text.count_rects()):
            x1, y1, x2, y2 = text.get_rect(number)
            box = ((x1 - left) * scale, (top - y2) * scale, (x2 - left) * scale, (top - y1) * scale)
            pieces.append(pdf_line(text.get_text_bounded(x1, y1, x2, y2), box))
        return [piece for piece in pieces if piece.text]
    finally:
        text.close()


def _scale(pixels: Pixels) -> float:
    long, short = max(pixels.shape[:2]), min(pixels.shape[:2])
    if long > LONG_SIDE:
        return LONG_SIDE / float(long)
    return max(1.0, min(SHORT_SIDE / float(short), LONG_SIDE / float(long), MOST_ENLARGED))


def _box(numbers: NDArray[Any]) -> Box:
    """Of two corners or of four."""
    xs, ys = numbers[0::2], numbers[1::2]
    return float(xs.min()), float(ys.min()), float(xs.max()), float(ys.max())


def _moved(box: Box, right: float, down: float) -> Box:
    return box[0] + right, box[1] + down, box[2] + right, box[3] + down


def _told_line(line: Line, page: int) -> dict[str, Any]:
    return {"text": line.text, "box": _round(line.box), "score": round(line.score, 4), "page": page}


def _told_block(block: Block, page: int) -> dict[str, Any]:
    told = {"kind": block.kind, "label": block.label, "box": _round(block.box), "text": block.text}
    if block.kind in ("table", "pairs", "list"):
        told["rows"] = [list(row) for row in block.rows]
    return {**told, "score": round(block.score, 4), "page": page}


def _round(box: Sequence[float]) -> list[float]:
    return [round(side, 1) for side in box]


if __name__ == "__main__":
    serve(prepare)
