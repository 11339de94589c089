from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from engine import catalog
from engine.adapters import family
from engine.adapters.family import Prepared
from engine.adapters.page import FAMILY, PageModel, PagePreparer
from engine.errors import EngineError, InputTooLong, InvalidInput, LoadFailed
from engine.requests import Extracted, ExtractOptions, Item, Media, Task, Usage
from tests.engine.adapters.papers import (
    COSTS,
    FIELDS,
    HTML,
    LOSSES,
    Cells,
    claim,
    encrypted_pdf,
    png,
    policy_pdf,
    report,
    scanned_pdf,
)
from tests.weights import weights

SPEC = catalog.load([Path(__file__).parents[3] / "catalog"]).models["serai/page-markdown"]


@pytest.fixture(scope="module")
def model() -> Iterator[PageModel]:
    made = FAMILY.load(SPEC, weights(SPEC.id), "cpu")
    yield made
    made.unload()


@pytest.fixture(scope="module")
def preparer() -> PagePreparer:
    return FAMILY.preparer(SPEC, Path())


def prepared(preparer: PagePreparer, item: Item, **extra: Any) -> Prepared | EngineError:
    (one,) = preparer.prepare(Task.EXTRACT, [item], ExtractOptions(extra=extra))
    return one


def read(model: PageModel, preparer: PagePreparer, item: Item, **extra: Any) -> dict[str, Any]:
    job = prepared(preparer, item, **extra)
    assert isinstance(job, Prepared), job
    (output,) = model.run([job])
    assert isinstance(output, Extracted), output
    return dict(output.data)


def image(data: bytes) -> Item:
    return Item(images=(Media(data),))


def table(rows: Cells) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


@pytest.fixture(scope="module")
def reported(model: PageModel, preparer: PagePreparer) -> dict[str, Any]:
    return read(model, preparer, image(png(report())))


def test_the_catalogue_names_this_family() -> None:
    assert family.family(SPEC.family) is FAMILY


def test_a_drawn_page_comes_out_whole_and_in_order(
    reported: dict[str, Any], compared: Callable[..., None]
) -> None:
    drawn = (
        "# Quarterly Report of Inference Costs\n\n## 1. Introduction\n\n"
        "The invoice number is INV-2024-0815 and the total amount due is $1,234.56 by March 31, 2025. "
        "Please remit payment to Acme Corporation at the address below. This paragraph is long enough to "
        "form a text block of several lines for layout detection.\n\n"
        f"Table 1: Costs per model\n\n{table(COSTS)}\n\n"
        "## 2. Figures\n\n<!-- figure -->\n\nFigure 1: Costs by month."
    )
    name = "serai/page-markdown"
    compared("page", name, "what was drawn", [reported["markdown"]], [drawn], weights="real")
    assert reported["markdown"] == drawn
    assert (reported["format"], reported["pages"]) == ("image", 1)


def test_lines_and_blocks_have_boxes_in_pixels_of_the_page(reported: dict[str, Any]) -> None:
    (line,) = [line for line in reported["lines"] if line["text"] == "1. Introduction"]
    left, top, right, bottom = line["box"]
    assert (abs(left - 80) < 10, abs(top - 152) < 10, 280 < right < 320, 170 < bottom < 190) == (True,) * 4
    assert 0.9 < line["score"] <= 1
    assert line["page"] == 1
    (grid,) = [block for block in reported["blocks"] if block["kind"] == "table"]
    assert grid["rows"] == [list(row) for row in COSTS]
    assert abs(grid["box"][0] - 150) < 25


def test_the_fields_of_a_form_survive(model: PageModel, preparer: PagePreparer) -> None:
    markdown = read(model, preparer, image(png(claim())))["markdown"]

    assert markdown.startswith("# FLOOD INSURANCE CLAIM FORM\n\n## Section A. Policyholder\n\n")
    assert "\n".join(f"- {label}: {value}" for label, value in FIELDS) in markdown
    assert table(LOSSES) in markdown
    assert "to a depth of 60 cm. Carpets, kitchen cabinets and the boiler were damaged." in markdown
    assert markdown.endswith("Signature: E. Whitfield\n\nDate: 20 September 2024")


def test_another_name_on_the_form_is_another_name_in_the_markdown(
    model: PageModel, preparer: PagePreparer
) -> None:
    """And so it is where the layout model sees a column of labels and one of values."""
    fields = (("Name of insured", "Tobias Quennell"), ("Policy number", "FL-1999-000417"))

    markdown = read(model, preparer, image(png(claim(fields))))["markdown"]

    assert "- Name of insured: Tobias Quennell\n- Policy number: FL-1999-000417" in markdown


def test_a_turned_photograph_is_read_upright(model: PageModel, preparer: PagePreparer) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    out = io.BytesIO()
    claim().crop((0, 0, 1000, 400)).rotate(90, expand=True).save(out, "JPEG", quality=92, exif=exif)

    markdown = read(model, preparer, image(out.getvalue()))["markdown"]

    assert "- Name of insured: Eleanor Whitfield" in markdown


def test_a_scanned_pdf_is_read_page_by_page(model: PageModel, preparer: PagePreparer) -> None:
    item = Item(document=Media(scanned_pdf(claim(), report(), claim()), "pdf"))
    job = prepared(preparer, item, page_range=[2, 2])
    assert isinstance(job, Prepared)

    data = read(model, preparer, item, page_range=[2, 2])

    assert (job.cost, job.usage) == (1, Usage(pages=1))
    assert (data["format"], data["pages"]) == ("pdf", 1)
    assert {line["page"] for line in data["lines"]} == {2}
    assert "INV-2024-0815" in data["markdown"]
    assert table(COSTS) in data["markdown"]


def test_text_that_a_pdf_holds_is_taken_and_not_guessed(model: PageModel, preparer: PagePreparer) -> None:
    data = read(model, preparer, Item(document=Media(policy_pdf(1))))

    assert all(line["score"] == 1.0 for line in data["lines"])
    assert data["markdown"].startswith("# Flood policy 1\n\n## 1. Cover\n\nThe insurer pays")
    assert "insured property, up to the limit below." in data["markdown"]
    assert "| Building | $250,000 |" in data["markdown"]


def test_two_images_are_two_pages(model: PageModel, preparer: PagePreparer) -> None:
    blank = png(Image.new("RGB", (300, 200), "white"))
    item = Item(images=(Media(blank), Media(blank)))
    job = prepared(preparer, item)
    assert isinstance(job, Prepared)

    assert (job.cost, job.usage) == (2, Usage(images=2, pages=2))
    assert read(model, preparer, item) == {
        "format": "image",
        "markdown": "",
        "pages": 2,
        "lines": [],
        "blocks": [],
    }


def test_a_narrow_strip_is_read_without_blowing_it_up(model: PageModel, preparer: PagePreparer) -> None:
    strip = report().crop((70, 195, 930, 228))

    lines = read(model, preparer, image(png(strip)))["lines"]

    assert "INV-2024-0815 and the total amount due is $1,234.56" in " ".join(line["text"] for line in lines)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (image(b""), "0 bytes"),
        (image(b"no image at all"), "no image"),
        (image(png(Image.new("L", (2000, 10)))), "2000 x 10"),
        (Item(document=Media(b"", "pdf")), "0 bytes"),
        (Item(document=Media(encrypted_pdf())), "password"),
        (Item(document=Media(HTML.encode(), "scan.pdf")), "called pdf"),
        (Item(document=Media(HTML.encode(), "html")), "this is a html"),
        (Item(text="words"), "images, or one document"),
        (Item(), "images, or one document"),
        (Item(images=(Media(b"x"),), document=Media(b"x")), "images, or one document"),
    ],
)
def test_what_is_no_page_is_refused_before_it_is_queued(
    preparer: PagePreparer, item: Item, words: str
) -> None:
    error = prepared(preparer, item)

    assert isinstance(error, InvalidInput)
    assert words in error.message


def test_an_image_that_breaks_off_fails_alone(model: PageModel, preparer: PagePreparer) -> None:
    whole = png(report())
    broken = prepared(preparer, image(whole[: len(whole) // 2]))
    blank = prepared(preparer, image(png(Image.new("RGB", (100, 100), "white"))))
    assert isinstance(broken, Prepared)
    assert isinstance(blank, Prepared)

    first, second = model.run([broken, blank])

    assert isinstance(first, InvalidInput)
    assert isinstance(second, Extracted)


def test_too_many_pages_at_once_name_the_way_out(preparer: PagePreparer) -> None:
    error = prepared(preparer, Item(document=Media(policy_pdf(65))))

    assert isinstance(error, InputTooLong)
    assert "page_range" in error.message


def test_weights_that_are_not_there_fail_the_load(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"layout_cdla\.onnx"):
        FAMILY.load(SPEC, tmp_path, "cpu")


def test_the_child_keeps_to_its_footprint(model: PageModel, preparer: PagePreparer) -> None:
    read(model, preparer, image(png(report().crop((0, 0, 1000, 300)))))

    footprint = FAMILY.footprint(SPEC, Path())
    resident = psutil.Process(model.child.pid).memory_info().rss

    assert resident < footprint.weights_bytes + footprint.workspace(1)
    assert resident > 100 << 20
