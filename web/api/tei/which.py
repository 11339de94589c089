"""Which model answers: TEI's requests name none, so the path does, or the settings."""

from __future__ import annotations

from aiohttp import web

from engine.errors import UnknownModel
from web.keys import ENGINE


def model(request: web.Request, *settings: str) -> str:
    """The model of the path; at the root that of the first of these settings that has one.

    Raises UnknownModel that says how to name one.
    """
    if named := request.match_info.get("model"):
        return named
    chosen = request.app[ENGINE].settings
    if found := next((name for key in settings if (name := getattr(chosen, key))), None):
        return str(found)
    path = request.path.removeprefix(chosen.base_path)
    raise UnknownModel(
        f"No model answers {path} here: use /tei/{{model}}{path}, or set {' or '.join(settings)} to one."
    )
