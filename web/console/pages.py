"""How a page is made: whole, or only the panel that asks for itself again; and what every page has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlencode

import aiohttp_jinja2
from aiohttp import web

import engine as product
from engine.access.principals import Action, Kind
from web.access.current import current, may
from web.console import words
from web.console.hub import HUB
from web.keys import ENGINE

NAVIGATION = (
    ("overview", "Overview", "/", Action.INSPECT),
    ("queues", "Queues", "/console/queues", Action.INSPECT),
    ("devices", "Devices", "/console/devices", Action.INSPECT),
    ("requests", "Requests", "/console/requests", Action.INSPECT),
    ("recordings", "Recordings", "/console/recordings", Action.INSPECT),
    ("replays", "Replays", "/console/replays", Action.INSPECT),
    ("plans", "Plans", "/console/plans", Action.INSPECT),
    ("playground", "Playground", "/console/playground", Action.CALL),
    ("audit", "Audit", "/console/audit", Action.INSPECT),
    ("settings", "Settings", "/console/settings", Action.INSPECT),
    ("entries", "Catalogue", "/console/entries", Action.ADMINISTER),
    ("people", "Keys and users", "/console/people", Action.ADMINISTER),
)


async def page(
    request: web.Request,
    name: str,
    context: Mapping[str, object],
    *,
    cues: Iterable[str] = (),
    series: Iterable[str] = (),
    rows: bool = False,
    at: str = "",
    status: int = 200,
) -> web.Response:
    """`console/NAME.html`; for a panel that asks for itself `console/panels/NAME.html`, which it includes.

    `cues` are what its stream tells it of, `series` what its charts draw, `at` its place in the
    navigation where that is not its name.
    """
    hub = request.app[HUB]
    await hub.look()
    panel = wants_panel(request)
    live = urlencode(
        {
            "since": f"{hub.boot}-{hub.frame}",
            "cues": ",".join(cues),
            "series": ",".join(series),
            "rows": int(rows),
        }
    )
    common = {"at": at or name, "live": live, **shell(request), **context}
    template = f"console/panels/{name}.html" if panel else f"console/{name}.html"
    answer = aiohttp_jinja2.render_template(template, request, common, status=status)
    answer.headers["Vary"] = "HX-Request, Accept"
    return answer


def wants_panel(request: web.Request) -> bool:
    return "HX-Request" in request.headers


def shell(request: web.Request) -> dict[str, object]:
    """What every page has: where it is, who looks, and how the whole server is."""
    hub, principal = request.app[HUB], current(request)
    base = request.app[ENGINE].settings.base_path
    cells = hub.since(-1, whole=False)
    return {
        "base": base,
        "version": product.__version__,
        "navigation": [
            (key, label, base + path) for key, label, path, action in NAVIGATION if may(request, action)
        ],
        "who": principal.name if principal else "",
        "role": principal.role if principal and principal.kind is Kind.USER else "",
        "session": principal is not None and principal.kind is Kind.USER,
        "operates": may(request, Action.OPERATE),
        "calls": may(request, Action.CALL),
        "administers": may(request, Action.ADMINISTER),
        "server": {name.removeprefix("s-"): value for name, value in cells.items()},
        "all_version": request.app[ENGINE].operators.version("*"),
    }


def model_path(model: str) -> str:
    """A model's page, below the base path. Its slash stays, as in the API's own addresses."""
    return f"/console/models/{quote(model, safe='/:')}"


FILTERS = {**words.FILTERS, "model_path": model_path}
