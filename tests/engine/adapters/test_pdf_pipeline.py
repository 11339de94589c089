from __future__ import annotations

import pytest

from engine.adapters.document import FAMILY
from engine.adapters.documents import standard
from engine.adapters.documents.standard import PdfPipeline
from engine.errors import WeightsUnavailable
from engine.requests import Task
from tests.engine.adapters.tiny_vision import entry


def spec(**options):
    return entry("document", Task.EXTRACT, inputs=("document",), options=options)


def test_an_entry_that_says_nothing_needs_nothing():
    PdfPipeline.of(spec()).check()

    assert not PdfPipeline.of(spec(ocr=True)).reads_pictures


@pytest.mark.parametrize("options", [{"pipeline": "vlm"}, {"ocr": "perhaps"}])
def test_an_option_that_cannot_be_meant_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        FAMILY.footprint(spec(**options), None)


def test_the_standard_pipeline_says_what_it_lacks(tmp_path):
    with pytest.raises(WeightsUnavailable, match=r"standard needs (torchvision|options.artifacts_path)"):
        FAMILY.load(spec(pipeline="standard", artifacts_path=str(tmp_path / "none")), tmp_path, "cpu")


def test_the_standard_pipeline_is_counted_as_what_it_takes(tmp_path):
    assert FAMILY.footprint(spec(pipeline="standard"), tmp_path).weights_bytes == standard.WEIGHTS_BYTES
