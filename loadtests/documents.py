"""Many conversions, one after another: what they take, and whether server and child keep what they took.

Word files, sheets, slides, web pages and Markdown by turns through the family itself, no HTTP.
`python -m loadtests.documents --count 500`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import docx
import openpyxl  # type: ignore[import-untyped]
import psutil

from engine import catalog
from engine.adapters.document import FAMILY, DocumentModel
from engine.errors import EngineError
from engine.requests import ExtractOptions, Item, Media, Task
from engine.resources import bundled
from loadtests.tables import percentile, table, verdict

MODEL = "docling-project/docling"
GROWTH_BYTES = 32 << 20
"""What the second half of all conversions may add to what server and child hold."""


def word() -> bytes:
    made, out = docx.Document(), BytesIO()
    made.add_heading("Flood policy", 0)
    for number in range(40):
        made.add_paragraph(f"Clause {number}: the insurer pays for direct physical loss. " * 4)
    made.save(out)
    return out.getvalue()


def sheet() -> bytes:
    made, out = openpyxl.Workbook(), BytesIO()
    for row in range(200):
        made.active.append([f"item {row}", row, row * 2.5])
    made.save(out)
    return out.getvalue()


def page() -> bytes:
    rows = "".join(f"<tr><td>{n}</td><td>amount {n}</td></tr>" for n in range(100))
    return f"<html><body><h1>Limits</h1><table>{rows}</table></body></html>".encode()


def text() -> bytes:
    return "\n\n".join(
        f"## Part {n}\n\n- one\n- two\n\nA paragraph of some length." for n in range(80)
    ).encode()


def held(model: DocumentModel) -> tuple[int, int]:
    """Resident bytes of this process and of the child."""
    child = psutil.Process(model.child.pid).memory_info().rss if model.child.pid else 0
    return psutil.Process().memory_info().rss, child


def measure(count: int) -> list[str]:
    """What missed its objective."""
    spec = catalog.load([bundled("catalog")]).models[MODEL]
    preparer, model = FAMILY.preparer(spec, Path()), FAMILY.load(spec, Path(), "cpu")
    kinds = {"docx": word(), "xlsx": sheet(), "html": page(), "md": text()}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    marks: list[tuple[int, int, int]] = []
    children = {model.child.pid}
    failed = 0
    for number in range(count):
        name = list(kinds)[number % len(kinds)]
        began = time.perf_counter()
        (job,) = preparer.prepare(Task.EXTRACT, [Item(document=Media(kinds[name], name))], ExtractOptions())
        outputs = [job] if isinstance(job, EngineError) else model.run([job])
        failed += isinstance(outputs[0], EngineError)
        seconds[name].append(time.perf_counter() - began)
        children.add(model.child.pid)
        if (number + 1) % max(1, count // 10) == 0:
            marks.append((number + 1, *held(model)))
    model.unload()
    _print(seconds, marks, len(children))
    middle, end = marks[len(marks) // 2], marks[-1]
    grown = end[1] + end[2] - middle[1] - middle[2]
    missed = [f"{failed} of {count} conversions failed"] if failed else []
    if grown > GROWTH_BYTES:
        missed.append(f"the second half added {grown >> 20} MiB; {GROWTH_BYTES >> 20} are allowed")
    return missed


def _print(seconds: dict[str, list[float]], marks: Sequence[tuple[int, int, int]], children: int) -> None:
    rows = [
        [
            name,
            str(len(took)),
            f"{1000 * percentile(took, 0.5):.0f} ms",
            f"{1000 * percentile(took, 0.99):.0f} ms",
        ]
        for name, took in seconds.items()
    ]
    print(table(["format", "conversions", "p50", "p99"], rows), end="\n\n")
    sizes = [[str(at), f"{own >> 20} MiB", f"{child >> 20} MiB"] for at, own, child in marks]
    print(table(["after", "server", "child"], sizes), end="\n\n")
    print(f"{children} children, one after another")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="40 conversions")
    chosen = parser.parse_args(argv)
    return verdict(measure(40 if chosen.quick else chosen.count))


if __name__ == "__main__":
    sys.exit(main())
