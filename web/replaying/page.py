"""A report as one page that needs nothing beside it: it can be sent, kept and printed."""

from __future__ import annotations

import math

import jinja2

from engine.quantities import about
from engine.resources import bundled
from replay.report.report import Report


def render(report: Report) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(bundled("templates")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"ms": ms, "share": share, "size": size, "number": number}
    template = environment.get_template("report.html")
    before = {}
    if report.recorded is not None:
        before = {(row["model"], row["service_class"]): row for row in report.recorded.groups}
    return template.render(report=report, before=before)


def ms(seconds: float | None) -> str:
    """As people read times; a dash for none."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def share(value: float) -> str:
    return f"{value:.1%}"


def size(count: int) -> str:
    return str(about(count))


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
