"""Small documents and drawn pages for tests."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

import docx
import openpyxl
import pptx
from PIL import Image, ImageDraw, ImageFont

MARKDOWN = (
    "# Policy\n\nThe insurer pays for **flood**.\n\n- Buildings\n- Contents\n\n"
    "| k | v |\n|---|---|\n| x | 1 |\n"
)
HTML = (
    "<!doctype html><html><head><title>Policy</title></head><body><h1>Policy</h1><p>The insurer pays.</p>"
    "<ul><li>Buildings</li><li>Contents</li></ul>"
    "<table><tr><th>Item</th><th>Limit</th></tr><tr><td>Building</td><td>$250,000</td></tr></table>"
    "{more}</body></html>"
)
CSV = "item,amount\nCarpets,3200\nBoiler,2100\n"

Cells = Sequence[Sequence[str]]
LIMITS: Cells = [("Item", "Limit"), ("Building", "$250,000"), ("Contents", "$100,000")]
COSTS: Cells = [
    ("Model", "Latency (ms)", "Cost"),
    ("MiniLM", "12", "$0.01"),
    ("SmolLM2", "250", "$0.20"),
    ("MobileNet", "35", "$0.02"),
]
LOSSES: Cells = [
    ("Item", "Age (years)", "Amount claimed"),
    ("Carpets", "4", "$3,200.00"),
    ("Kitchen cabinets", "7", "$8,450.50"),
    ("Boiler", "2", "$2,100.00"),
    ("Total", "", "$13,750.50"),
]
FIELDS = (
    ("Name of insured", "Eleanor Whitfield"),
    ("Policy number", "FL-2024-778103"),
    ("Property address", "14 Mill Lane, Harborough, LA 70112"),
    ("Date of loss", "12 September 2024"),
)


def word() -> bytes:
    document = docx.Document()
    document.add_heading("Flood policy", 0)
    document.add_heading("Cover", 1)
    document.add_paragraph("The insurer pays for direct physical loss.")
    for item in ("Buildings", "Contents"):
        document.add_paragraph(item, style="List Bullet")
    table = document.add_table(rows=len(LIMITS), cols=2)
    for row, cells in zip(table.rows, LIMITS, strict=True):
        for cell, text in zip(row.cells, cells, strict=True):
            cell.text = text
    return _saved(document)


def slides(number: int) -> bytes:
    presentation = pptx.Presentation()
    for n in range(1, number + 1):
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = f"Slide {n}"
        slide.placeholders[1].text = "One\nTwo"
    return _saved(presentation)


def sheet() -> bytes:
    book = openpyxl.Workbook()
    for cells in LIMITS:
        book.active.append(cells)
    return _saved(book)


def pdf(pages: Sequence[Sequence[tuple[int, int, int, str]]]) -> bytes:
    """Text at (x, y, size) on pages of 612 x 792 points; y counts from the bottom."""
    return drawn_pdf(
        b"".join(
            b"BT /F1 %d Tf %d %d Td (%s) Tj ET\n" % (size, x, y, text.encode()) for x, y, size, text in texts
        )
        for texts in pages
    )


def drawn_pdf(pages: Iterable[bytes], about: bytes = b"") -> bytes:
    """Pages that these operators draw. `about` tells how they are packed."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    kids = []
    for drawn in pages:
        objects.append(b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(drawn), about, drawn))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % len(objects)
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(b"%010d 00000 n \n" % len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, b"".join(places))
    end = b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(out))
    return out + table + end


def policy_pdf(pages: int = 2) -> bytes:
    return pdf(
        [
            [
                (72, 720, 20, f"Flood policy {n}"),
                (72, 680, 14, "1. Cover"),
                (
                    72,
                    650,
                    11,
                    "The insurer pays for direct physical loss by or from flood to the insured prop-",
                ),
                (72, 636, 11, "erty, up to the limit below."),
                (72, 608, 11, "A second paragraph stands on a line of its own."),
                (72, 580, 11, "- Buildings"),
                (72, 566, 11, "- Contents"),
                *(
                    (72 + 130 * j, 530 - 16 * i, 11, t)
                    for i, row in enumerate(LIMITS)
                    for j, t in enumerate(row)
                ),
            ]
            for n in range(1, pages + 1)
        ]
    )


def encrypted_pdf() -> bytes:
    """Names a security handler that nobody has a password for."""
    handler = b"<< /Filter /Standard /V 1 /R 2 /P -4 /O <" + b"41" * 32 + b"> /U <" + b"42" * 32 + b"> >>"
    return policy_pdf(1).replace(b"/Root 1 0 R >>", b"/Root 1 0 R /Encrypt %s /ID [<00> <00>] >>" % handler)


def scanned_pdf(*pages: Image.Image) -> bytes:
    out = io.BytesIO()
    pages[0].save(out, "PDF", resolution=120, save_all=True, append_images=pages[1:])
    return out.getvalue()


def png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def report() -> Image.Image:
    """A page with a title, two sections, a paragraph of four lines, a 4 x 3 table and a figure."""
    page = Image.new("RGB", (1000, 1300), "white")
    draw = ImageDraw.Draw(page)
    _text(draw, 180, 60, "Quarterly Report of Inference Costs", 36, bold=1)
    _text(draw, 80, 150, "1. Introduction", 30, bold=1)
    paragraph = (
        "The invoice number is INV-2024-0815 and the total amount due is $1,234.56",
        "by March 31, 2025. Please remit payment to Acme Corporation at the address",
        "below. This paragraph is long enough to form a text block of several lines for",
        "layout detection.",
    )
    for n, line in enumerate(paragraph):
        _text(draw, 80, 200 + 30 * n, line, 23)
    _text(draw, 320, 350, "Table 1: Costs per model", 21)
    _table(draw, 150, 385, 240, COSTS)
    _text(draw, 80, 620, "2. Figures", 30, bold=1)
    _chart(draw, 260, 680)
    _text(draw, 330, 1010, "Figure 1: Costs by month.", 21)
    return page


def claim(fields: Sequence[tuple[str, str]] = FIELDS) -> Image.Image:
    """A form: labels with values on rules, a paragraph, a table of losses, a signature."""
    page = Image.new("RGB", (1000, 1300), "white")
    draw = ImageDraw.Draw(page)
    _text(draw, 220, 50, "FLOOD INSURANCE CLAIM FORM", 34, bold=1)
    _text(draw, 80, 140, "Section A. Policyholder", 26, bold=1)
    for n, (label, value) in enumerate(fields):
        _text(draw, 80, 190 + 48 * n, f"{label}:", 23)
        _text(draw, 340, 190 + 48 * n, value, 23)
        draw.line((335, 220 + 48 * n, 900, 220 + 48 * n), "black")
    _text(draw, 80, 450, "Section B. Loss", 26, bold=1)
    _text(
        draw,
        80,
        500,
        "On the night of 12 September the river rose and water entered the ground floor",
        23,
    )
    _text(
        draw,
        80,
        532,
        "to a depth of 60 cm. Carpets, kitchen cabinets and the boiler were damaged.",
        23,
    )
    _table(draw, 80, 582, 280, LOSSES)
    _text(draw, 80, 842, "Signature: E. Whitfield", 23)
    _text(draw, 600, 842, "Date: 20 September 2024", 23)
    return page


def _table(draw: ImageDraw.ImageDraw, left: int, top: int, width: int, rows: Cells) -> None:
    for i, row in enumerate(rows):
        for j, text in enumerate(row):
            x, y = left + width * j, top + 44 * i
            draw.rectangle((x, y, x + width, y + 44), outline="black", width=2)
            _text(draw, x + 14, y + 9, text, 23)


def _chart(draw: ImageDraw.ImageDraw, left: int, top: int) -> None:
    draw.rectangle((left, top, left + 480, top + 320), outline="black", width=2)
    for n, height in enumerate((120, 200, 160, 260, 90, 220)):
        x = left + 30 + 75 * n
        draw.rectangle((x, top + 310 - height, x + 50, top + 310), fill=(60, 90 + 25 * n, 160))


def _text(draw: ImageDraw.ImageDraw, x: int, y: int, text: str, size: int, bold: float = 0) -> None:
    """In the typeface that comes with Pillow, so that every machine draws the same."""
    draw.text((x, y), text, font=ImageFont.load_default(size), fill="black", stroke_width=bold)


def _saved(document: object) -> bytes:
    out = io.BytesIO()
    document.save(out)  # type: ignore[attr-defined]
    return out.getvalue()
