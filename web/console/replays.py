"""`/console/replays`: recorded traffic sent to this server again by a process of its own, and its report."""

from __future__ import annotations

import hashlib
import re
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web
from anyio import Path as AsyncPath

from engine.access.changes import Add, Revoke
from engine.access.credentials import key_hash
from engine.errors import EngineError, InvalidInput
from web import errors
from web.access import keys
from web.access.current import who
from web.console import pages, recordings, replays_form
from web.console.curves import Curve, Line
from web.console.errand_pages import ErrandPages
from web.console.errands import ERRANDS, RUNNING, Errand
from web.errors import NotFound
from web.keys import ENGINE
from web.replaying.own_server import environment

REPLAY = "replay"
PLAIN_STYLE = re.compile(rb"<style>(.*?)</style>", re.DOTALL)
FILES = {"json": ("report.json", "application/json"), "html": ("report.html", "text/html")}


async def one(request: web.Request) -> web.Response:
    """How far it is, or its report. Raises NotFound."""
    errands, errand = request.app[ERRANDS], await PAGES.found(request)
    progress = errands.progress(errand)
    report = None if errand.state == RUNNING else await errands.result(errand, FILES["json"][0])
    context = {
        "errand": errand,
        "progress": progress,
        "left": _left(progress),
        "live": errand.state == RUNNING,
        "report": report,
        "before": _before(report),
        "charts": [curve.as_json() for curve in (_report_curves(report) if report else [])],
        "live_curve": live_curve(progress).as_json() if progress else None,
        "told": replays_form.told(errand.asked),
        "now": time.time(),
    }
    return await pages.page(request, "replay", context, at="replays")


async def file(request: web.Request) -> web.Response:
    """The report as a page of its own, or as JSON. Raises NotFound."""
    errand = await PAGES.found(request)
    name, kind = FILES.get(request.match_info["form"], ("", ""))
    path = AsyncPath(request.app[ERRANDS].folder(errand) / (name or "none"))
    if not name or not await path.is_file():
        raise NotFound("This replay left no such report.")
    body = await path.read_bytes()
    answer = web.Response(body=body, content_type=kind, charset="utf-8")
    if kind == "application/json":
        said = f'attachment; filename="replay-{errand.source}-{errand.id}.json"'
        answer.headers["Content-Disposition"] = said
    else:  # it has its style in itself, and no script: just that style is let through
        answer.headers["Content-Security-Policy"] = report_policy(body)
    return answer


def report_policy(body: bytes) -> str:
    hashes = [b64encode(hashlib.sha256(style).digest()).decode() for style in PLAIN_STYLE.findall(body)]
    allowed = " ".join(f"'sha256-{each}'" for each in hashes) or "'none'"
    return f"default-src 'none'; style-src {allowed}; frame-ancestors 'none'"


def live_curve(progress: Mapping[str, Any]) -> Curve:
    """Latency so far beside what was recorded of the same requests."""
    found = progress["latency"]
    return Curve(
        "Latency, as it comes in",
        found["x"],
        [
            Line("p99", found["p99"]),
            Line("p50", found["p50"], look="soft"),
            Line("p99 recorded", found["was_p99"], look="grey", style="dashed"),
            Line("p50 recorded", found["was_p50"], look="faint", style="dashed"),
        ],
        y_kind="seconds",
        until=progress["span"],
    )


def _report_curves(report: Mapping[str, Any]) -> Sequence[Curve]:
    kinds = {"requests/s": ("rate", 1.0), "seconds": ("seconds", 1.0), "MiB": ("bytes", 2.0**20)}
    made = []
    for chart in report["charts"]:
        kind, factor = kinds.get(chart["unit"], ("number", 1.0))
        xs = sorted({x for series in chart["series"] for x in series["x"]})
        lines = []
        for number, series in enumerate(chart["series"]):
            at = dict(zip(series["x"], series["y"], strict=True))
            values = [at[x] * factor if x in at else None for x in xs]
            look, style = ("accent", "line") if number == 0 else ("grey", "dashed")
            lines.append(Line(series["name"], values, look, style))
        made.append(Curve(chart["title"], xs, lines, y_kind=kind))
    return made


def _before(report: Mapping[str, Any] | None) -> dict[tuple[str, str], Mapping[str, Any]]:
    rows = (report or {}).get("recorded") or {}
    return {(row["model"], row["service_class"]): row for row in rows.get("groups", [])}


def _left(progress: Mapping[str, Any]) -> float | None:
    return max(0.0, progress["span"] - progress["at"]) if progress else None


async def _begin(request: web.Request, form: Mapping[str, str]) -> Errand:
    """The child asks with a key of its own, which ends with it, where a key is needed."""
    engine, me = request.app[ENGINE], who(request)
    asked = replays_form.read(form)
    source = form.get("recording", "")
    info = await recordings.find(request, source)
    if info.ended_at is None:
        raise InvalidInput(
            f"{source} is still being recorded, and a replay of it would be too; stop it first."
        )
    settings, access = engine.settings, engine.access
    variables, key = environment(settings), ""
    if not access.open:
        secret, row = keys.made(keys.NewKey(f"replay of {source[:40]}"))
        key = row.id
        variables = {**variables, "SERAI_KEY": secret}
    here = _here(request)

    def command(folder: Path) -> list[str]:
        base = str(folder / "report")
        return ["replay", source, "--to", here, "--output", base, "--supervised", *asked]

    async def over() -> None:
        if key:
            await access.change(Revoke(key), me, "its replay has ended")

    async def do() -> Errand:
        if key:
            await access.change(Add(row, key_hash(secret)), me, "for a replay, and as long as it")
        try:
            shown = replays_form.kept(form)
            return await request.app[ERRANDS].begin(REPLAY, source, me, shown, command, variables, over)
        except BaseException:
            await over()
            raise

    if request.app[ERRANDS].running(REPLAY):
        return await request.app[ERRANDS].begin(REPLAY, source, me, {}, command, variables, over)  # refused
    reason = form.get("reason", "")[:500] or " ".join(asked)
    return await engine.recordings.noted("replay", source, me, reason, do)


def _here(request: web.Request) -> str:
    """This server, as whoever asks has reached it."""
    assert request.transport is not None
    host, port = request.transport.get_extra_info("sockname")[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}{request.app[ENGINE].settings.base_path}"


async def _page(
    request: web.Request, *, form: Mapping[str, str], error: EngineError | None = None
) -> web.Response:
    errands = request.app[ERRANDS]
    found = await errands.listed(REPLAY)
    outcomes = {each.id: _outcome(await errands.result(each, FILES["json"][0])) for each in found[:50]}
    try:
        infos = await request.app[ENGINE].recordings.infos()
    except InvalidInput:
        infos = []
    context = {
        "found": found,
        "outcomes": outcomes,
        "told": {each.id: replays_form.told(each.asked) for each in found},
        "recordings": [info for info in infos if info.ended_at is not None and info.requests],
        "busy": errands.running(REPLAY),
        "error": error,
        "form": form,
        "defaults": replays_form.DEFAULTS,
    }
    status = errors.status(error) if error else 200
    return await pages.page(request, "replays", context, status=status)


def _outcome(report: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What the list says of a report: how many, their worst p99, and whether it may be believed."""
    if report is None:
        return None
    groups = report["replayed"]["groups"]
    return {
        "requests": report["replayed"]["requests"],
        "void": report["sending"]["void"],
        "aborted": report["sending"]["aborted"],
        "misses": sum(not row["holds"] for row in groups),
        "groups": len(groups),
    }


PAGES = ErrandPages(REPLAY, _page, _begin)
