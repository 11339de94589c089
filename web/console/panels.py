"""Answers that are no page of their own for htmx: what was done, and what stands in the page's dialog."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp_jinja2
from aiohttp import web

from web.console import pages


def said(request: web.Request, context: Mapping[str, object]) -> web.Response:
    answer = aiohttp_jinja2.render_template(
        "console/panels/said.html", request, {**pages.shell(request), **context}
    )
    answer.headers["HX-Trigger"] = "acted"
    return answer


def dialog(
    request: web.Request, name: str, context: Mapping[str, object], status: int, at: str = "overview"
) -> web.Response:
    """In the page's dialog, or as a page of its own."""
    panel = pages.wants_panel(request)
    template = f"console/panels/{name}.html" if panel else f"console/{name}.html"
    common = {**pages.shell(request), "at": at, "live": "", **context}
    answer = aiohttp_jinja2.render_template(template, request, common, status=status)
    if panel:
        answer.headers.update({"HX-Retarget": "#dialog-body", "HX-Reswap": "innerHTML"})
    return answer
