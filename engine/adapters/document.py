"""Documents to Markdown by docling: DOCX, PPTX, XLSX, HTML, Markdown, CSV and PDFs that hold their text.

A cost of 1 is one page: pages of a PDF, slides, or so many bytes of text (`formats.PAGE_BYTES`) where
a format has no pages. A scanned PDF has no text to convert: it is refused with the name of the model
that reads pictures (`options: {scanned: ...}` of the catalogue entry).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from engine.adapters.documents import formats, standard
from engine.adapters.documents.child import Bounds, Child
from engine.adapters.documents.limits import DocumentLimits
from engine.adapters.documents.pdf import PdfReader, page_range
from engine.adapters.documents.standard import PdfPipeline
from engine.adapters.family import Footprint, Prepared
from engine.adapters.preparing.kinds import extract_options
from engine.catalog import ModelSpec
from engine.errors import EngineError, InputTooLong, InvalidInput
from engine.requests import Extracted, Item, Options, Task, Usage

OUTPUTS = ("markdown", "json", "html", "doctags", "text")

WEIGHTS_BYTES = 168 << 20
"""The child's resident memory: 153 MiB measured when it is ready, 155 to 167 between later jobs."""
WORKSPACE_BYTES = 32 << 20
BYTES_PER_PAGE = 1 << 20
"""Measured on documents of 20 to 60 pages: 1.1 MiB of sheets, 0.5 of DOCX, 0.35 of HTML, 0.15 of PDF."""

BOUNDS = Bounds(memory_bytes=1536 << 20, resident_bytes=512 << 20)
SECONDS, SECONDS_PER_PAGE, LONGEST = 30.0, 2.0, 120.0
"""A page takes 10 to 60 ms on an idle machine."""


class DocumentPreparer:
    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._limits = DocumentLimits.of(spec)
        self._pipeline = PdfPipeline.of(spec)
        self._pdfs = PdfReader(self._limits)

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        asked = extract_options(task, options)
        if asked.labels:
            raise InvalidInput("This model converts documents and knows no labels.")
        extra = {**self._spec.options, **asked.extra}
        if extra.get("output", "markdown") not in OUTPUTS:
            raise InvalidInput(f"output is one of {', '.join(OUTPUTS)}; not {str(extra['output'])[:100]!r}.")
        page_range(extra)
        return [self._one(item, extra) for item in items]

    def _one(self, item: Item, extra: Mapping[str, Any]) -> Prepared | EngineError:
        try:
            return self._prepared(item, extra)
        except EngineError as error:
            return error

    def _prepared(self, item: Item, extra: Mapping[str, Any]) -> Prepared:
        if item.document is None or item.text is not None or item.images or item.audio or item.video:
            raise InvalidInput("This model takes one document an item, and nothing else.")
        within(self._spec, len(item.document.data))
        found = formats.read(item.document, self._limits)
        scanned = extra.get("scanned", "a model that reads pictures")
        if found.format == "image":
            raise InvalidInput(f"This is a picture, which has no text to convert; use {scanned}.")
        request = {"format": found.format, "output": extra.get("output", "markdown")}
        cost = found.pages
        if found.format == "pdf":
            pages = self._pdfs.pages(found.data, page_range(extra))
            if not pages.has_text and not self._pipeline.reads_pictures:
                raise InvalidInput(f"The PDF holds pictures of pages and no text; use {scanned}.")
            request |= {"first": pages.first, "last": pages.last}
            cost = pages.count
        elif page_range(extra):
            raise InvalidInput(f"page_range is for PDFs; a {found.format} has no pages of its own.")
        too_many(self._spec, cost)
        return Prepared(cost, {**request, "data": found.data}, len(found.data), Usage(pages=cost))


class DocumentModel:
    def __init__(self, limits: DocumentLimits, pipeline: PdfPipeline) -> None:
        """Raises WeightsUnavailable for a pipeline that cannot run here."""
        pipeline.check()
        self._limits = limits
        usual = standard.BOUNDS if pipeline.standard else BOUNDS
        setup = pipeline.model_dump() if pipeline.standard else {}
        self.child = Child("engine.adapters.documents.document_worker", limits.bounds(usual), setup)
        self.child.start()

    def run(self, jobs: Sequence[Prepared]) -> list[Extracted | EngineError]:
        return self.run_while(jobs, [always] * len(jobs))

    def run_while(
        self, jobs: Sequence[Prepared], wanted: Sequence[Callable[[], bool]]
    ) -> list[Extracted | EngineError]:
        seconds = [self._limits.seconds(patience(job.cost)) for job in jobs]
        return [converted(self.child, *each) for each in zip(jobs, seconds, wanted, strict=True)]

    def unload(self) -> None:
        self.child.close()


class DocumentFamily:
    cost_unit: ClassVar[str] = "pages"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        if PdfPipeline.of(spec).standard:
            return Footprint(standard.WEIGHTS_BYTES, standard.WORKSPACE_BYTES, BYTES_PER_PAGE)
        return Footprint(WEIGHTS_BYTES, WORKSPACE_BYTES, BYTES_PER_PAGE)

    def preparer(self, spec: ModelSpec, path: Path) -> DocumentPreparer:
        return DocumentPreparer(spec)

    def load(self, spec: ModelSpec, path: Path, device: str) -> DocumentModel:
        return DocumentModel(DocumentLimits.of(spec), PdfPipeline.of(spec))


def patience(pages: int) -> float:
    """Seconds after which a conversion is given up: its slot is not held for ever."""
    return min(LONGEST, SECONDS + pages * SECONDS_PER_PAGE)


def always() -> bool:
    """Whether somebody waits, where nobody says that they left."""
    return True


def converted(
    child: Child, job: Prepared, seconds: float, wanted: Callable[[], bool]
) -> Extracted | EngineError:
    """What a worker makes of one job, as long as it is `wanted`; a job that fails fails alone."""
    try:
        answer = child.call(job.payload, seconds, wanted)
    except EngineError as error:
        return error
    return Extracted(data={"format": job.payload["format"], **answer})


def within(spec: ModelSpec, nbytes: int) -> None:
    """Raises InputTooLong for an item of more bytes than the entry allows."""
    limit = spec.limits.max_item_bytes
    if limit is not None and nbytes > limit:
        text = f"The document has {nbytes} bytes; {spec.id} takes {limit} (max_item_bytes)."
        raise InputTooLong(text, length=nbytes, max_length=limit)


def too_many(spec: ModelSpec, pages: int) -> None:
    """Raises InputTooLong for an item of more pages than the entry allows."""
    limit = spec.limits.max_batch_cost
    if limit is not None and pages > limit:
        raise InputTooLong(
            f"The document counts as {pages} pages; {spec.id} takes {limit} at once (max_batch_cost). Of a "
            "PDF, send a page_range; of anything else, a part.",
            length=pages,
            max_length=limit,
        )


FAMILY = DocumentFamily()
