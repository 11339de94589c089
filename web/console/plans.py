"""`/console/plans`: what this server could carry, and what if; worked out by a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from aiohttp import web
from anyio import to_thread

from engine.errors import EngineError, InvalidInput
from engine.records import files
from web import errors, sending
from web.access.current import who
from web.console import pages, plans_figures, plans_form, recordings
from web.console.errand_pages import ErrandPages
from web.console.errands import ERRANDS, RUNNING, Errand
from web.errors import NotFound
from web.keys import ENGINE
from web.replaying.own_server import environment

PLAN = "plan"
RESULT = "said"
"""What the child wrote to its standard output."""
MOST_COMPARED = 6


async def one(request: web.Request) -> web.Response:
    """How far it is, or what was found. Raises NotFound."""
    errands, errand = request.app[ERRANDS], await PAGES.found(request)
    live = errand.state == RUNNING
    result = None if live else await errands.result(errand, RESULT)
    context = {
        "errand": errand,
        "live": live,
        "progress": errands.progress(errand),
        "result": result,
        "curves": [curve.as_json() for curve in plans_figures.curves(result)] if result else [],
        "falls": plans_figures.falls(result) if result else [],
        "with_pins": plans_figures.with_pins(errand, result) if result else {},
        "told": plans_figures.told(errand),
    }
    return await pages.page(request, "plan", context, at="plans")


async def compare(request: web.Request) -> web.Response:
    """Several side by side. Raises NotFound."""
    names = list(dict.fromkeys(request.query.getall("of", [])))[:MOST_COMPARED]
    errands = request.app[ERRANDS]
    found = []
    for name in names:
        errand = await errands.find(PLAN, name)
        if (result := await errands.result(errand, RESULT)) is not None:
            found.append((errand, result))
    context = {
        "found": found,
        "told": {errand.id: plans_figures.told(errand) for errand, _ in found},
        "models": plans_figures.side_by_side([result for _, result in found]),
        "curve": plans_figures.together(found).as_json() if found else None,
    }
    return await pages.page(request, "compare", context, at="plans")


async def file(request: web.Request) -> web.Response:
    """What was found, as `serai plan study --json` says it. Raises NotFound."""
    errands, errand = request.app[ERRANDS], await PAGES.found(request)
    if (result := await errands.result(errand, RESULT)) is None:
        raise NotFound("This plan left no result.")
    answer = sending.small(result)
    said = f'attachment; filename="plan-{errand.source}-{errand.id}.json"'
    answer.headers["Content-Disposition"] = said
    return answer


async def _begin(request: web.Request, form: Mapping[str, str]) -> Errand:
    engine, me = request.app[ENGINE], who(request)
    asked = plans_form.read(form)
    source = form.get("recording", "")
    info = await recordings.find(request, source)
    if not info.requests:
        raise InvalidInput(f"The recording {source} holds no requests, so nothing can be planned by it.")
    measured = await _server(request, form.get("server", "").strip()) or source
    plans_form.refuse_unknown(form, await to_thread.run_sync(_models, recordings.database(request), measured))
    variables = environment(engine.settings)

    def command(folder: Path) -> list[str]:
        return ["plan", "study", source, "--json", "--supervised", *asked]

    async def over() -> None:
        """Nothing was lent to it."""

    async def do() -> Errand:
        shown = plans_form.kept(form)
        return await request.app[ERRANDS].begin(PLAN, source, me, shown, command, variables, over)

    if request.app[ERRANDS].running(PLAN):
        return await do()  # which says why not
    return await engine.recordings.noted("plan", source, me, " ".join(asked), do)


async def _server(request: web.Request, name: str) -> str:
    """The recording that says what server it is for: one by its name here, never a file."""
    if name and name not in {info.name for info in await request.app[ENGINE].recordings.infos()}:
        raise InvalidInput(f"server is the name of a recording of this server, not {name[:100]!r}.")
    return name


def _models(database: Path, recording: str) -> list[str]:
    """Those of the server that was recorded, by its snapshot; none where it has no snapshot."""
    with closing(files.connect(database)) as db:
        models = files.header(files.find(db, recording))["snapshot"].get("models", ())
    return [each["id"] for each in models if isinstance(each.get("id"), str)]


async def _page(
    request: web.Request, *, form: Mapping[str, str], error: EngineError | None = None
) -> web.Response:
    errands = request.app[ERRANDS]
    found = await errands.listed(PLAN)
    results: dict[str, Any] = {each.id: await errands.result(each, RESULT) for each in found[:50]}
    try:
        infos = await request.app[ENGINE].recordings.infos()
    except InvalidInput:
        infos = []
    context = {
        "found": found,
        "results": {name: plans_figures.summary(result) for name, result in results.items() if result},
        "told": {each.id: plans_figures.told(each) for each in found},
        "recordings": [info for info in infos if info.requests],
        "busy": errands.running(PLAN),
        "error": error,
        "form": form,
        "defaults": plans_form.DEFAULTS,
    }
    status = errors.status(error) if error else 200
    return await pages.page(request, "plans", context, status=status)


PAGES = ErrandPages(PLAN, _page, _begin)
