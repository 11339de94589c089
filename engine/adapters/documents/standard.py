"""docling's standard PDF pipeline (layout, tables, OCR), for who has its models and torchvision."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from engine.adapters.documents.child import Bounds
from engine.catalog import ModelSpec
from engine.errors import WeightsUnavailable

GiB = 1 << 30
BOUNDS = Bounds(memory_bytes=8 * GiB, resident_bytes=6 * GiB)
"""Not measured here: torch takes 0.5 GiB, and each model up to 0.4."""
WEIGHTS_BYTES = 2 * GiB
WORKSPACE_BYTES = GiB


class PdfPipeline(BaseModel):
    """How PDFs are read, by the entry's `options`; others are not looked at."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    pipeline: Literal["native", "standard"] = "native"
    artifacts_path: str | None = None
    """Directory that `docling-tools models download` filled."""
    ocr: bool = True
    tables: bool = True

    @classmethod
    def of(cls, spec: ModelSpec) -> PdfPipeline:
        """Raises ValueError for an option that cannot be meant."""
        return cls.model_validate(dict(spec.options))

    @property
    def standard(self) -> bool:
        return self.pipeline == "standard"

    @property
    def reads_pictures(self) -> bool:
        return self.standard and self.ocr

    def check(self) -> None:
        """Raises WeightsUnavailable where the standard pipeline is asked for and cannot run."""
        if not self.standard:
            return
        if missing := [n for n in ("torchvision", "docling_ibm_models") if not importlib.util.find_spec(n)]:
            raise WeightsUnavailable(
                f"options.pipeline: standard needs {' and '.join(missing)}, which this environment lacks. "
                "Install it (torchvision in the build that fits torch), or say pipeline: native."
            )
        if self.artifacts_path is None or not Path(self.artifacts_path).is_dir():
            raise WeightsUnavailable(
                "options.pipeline: standard needs options.artifacts_path, a directory with docling's models; "
                f"{self.artifacts_path} is none. `docling-tools models download -o DIR` makes one."
            )


def reader(setup: Mapping[str, Any]) -> Callable[[Any], Any]:
    """In the child: what makes a DoclingDocument of an opened PDF, its models loaded."""
    from docling.datamodel.accelerator_options import AcceleratorOptions
    from docling.datamodel.pipeline_options import ThreadedPdfPipelineOptions
    from docling.pipeline.standard_pdf_pipeline import StandardPdfPipeline

    chosen = PdfPipeline.model_validate(dict(setup))
    pipeline = StandardPdfPipeline(
        ThreadedPdfPipelineOptions(
            artifacts_path=chosen.artifacts_path,
            do_ocr=chosen.ocr,
            do_table_structure=chosen.tables,
            accelerator_options=AcceleratorOptions(device="cpu", num_threads=1),
        )
    )
    return lambda opened: pipeline.execute(opened, raises_on_error=True).document
