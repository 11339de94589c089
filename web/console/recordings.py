"""`/console/recordings`: traffic that has a name. Begun, ended, cut, sent away and taken in here.

Everything goes through the same owner as the admin API, and so into the same audit.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from aiohttp import hdrs, web
from anyio import CapacityLimiter, to_process, to_thread

from engine.access.principals import Action
from engine.errors import EngineError, Forbidden, InvalidInput, UnknownRecording
from engine.parts import scheduling_rules
from engine.quantities import size
from engine.records import content
from engine.records.views import PayloadWish, RecordingInfo
from engine.requests import ServiceClass
from replay.formats.columns import FORMS
from web import errors
from web.access.current import may, who
from web.access.form import fields
from web.console import pages
from web.console.curves import Curve, Line, Mark
from web.console.recordings_read import Peak, Summary, Targets, summary
from web.console.recordings_upload import as_recording, uploaded
from web.keys import ENGINE

AT_ONCE = 50_000
"""Requests of a recording that is read while its page is made; a longer one's figures follow the page."""
HOURS = 168.0
REMEMBERED = 16
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")

_ONE = CapacityLimiter(1)


@dataclass(frozen=True, slots=True)
class Listed:
    info: RecordingInfo
    content_bytes: int
    """Of what requests contained, where that was kept."""

    @property
    def running(self) -> bool:
        return self.info.ended_at is None

    @property
    def rows(self) -> int:
        return self.info.requests + self.info.batches + self.info.loads


class Summaries:
    """Figures of recordings that were looked at; those of one that has ended do not change by themselves."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Summary | str] = {}

    async def of(self, database: Path, info: RecordingInfo, targets: Targets) -> Summary | str:
        key = (info.name, info.started_at, info.ended_at, info.requests)
        if key not in self._known:
            found = await to_process.run_sync(
                summary, database, info.name, targets, cancellable=True, limiter=_ONE
            )
            while len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[key] = found
        return self._known[key]


SUMMARIES: web.AppKey[Summaries] = web.AppKey("summaries", Summaries)


def database(request: web.Request) -> Path:
    return request.app[ENGINE].settings.state_dir / "traffic.db"


async def show(request: web.Request) -> web.Response:
    return await _page(request)


async def act(request: web.Request) -> web.Response:
    """Begin, end, cut or delete one; back by 303. What is wrong is told on the page."""
    form: Mapping[str, str] = {}
    try:
        form = await fields(request)
        name = await _do(request, form)
    except EngineError as error:
        return await _page(request, error=error, form=form)
    return _to(request, f"/{name}" if name else "")


async def take_in(request: web.Request) -> web.Response:
    """A recording's file, or a trace's; the page of what became of it by 303."""
    try:
        async with uploaded(request) as (form, path):
            name = form.get("name") or Path(form["filename"]).name.partition(".")[0]
            if not NAME.fullmatch(name):
                raise InvalidInput("A recording is named by letters, digits, dots, dashes and underscores.")
            _recorded(request)
            file, _ = await as_recording(path, form)
            await request.app[ENGINE].recordings.take_in(name, file, who(request), form.get("reason", ""))
    except EngineError as error:
        return await _page(request, error=error)
    return _to(request, f"/{name}")


async def one(request: web.Request) -> web.Response:
    """One recording. Raises UnknownRecording."""
    info = await find(request, request.match_info["recording"])
    figures: Summary | str | None = None
    wanted = pages.wants_panel(request) or "figures" in request.query or info.requests <= AT_ONCE
    if wanted and info.requests:
        figures = await request.app[SUMMARIES].of(database(request), info, _targets(request))
    elif not info.requests:
        figures = f"The recording {info.name} holds no requests{' yet' if info.ended_at is None else ''}."
    found = figures if isinstance(figures, Summary) else None
    context = {
        "info": info,
        "listed": await _listed(request, [info]),
        "figures": found,
        "complaint": figures if isinstance(figures, str) else "",
        "curve": timeline(found).as_json() if found else None,
        "running": request.app[ENGINE].recordings.view.running,
    }
    return await pages.page(request, "recording", context, at="recordings")


def timeline(found: Summary) -> Curve:
    """Load, with the busiest stretch of each window marked."""
    return Curve(
        f"Requests a second, of each {found.width:g} s",
        found.times,
        [Line("requests", found.rates, style="line")],
        marks=[_mark(peak) for peak in found.peaks],
    )


def _mark(peak: Peak) -> Mark:
    return Mark(peak.begin, f"{peak.window:g} s: {peak.rate:.3g}/s", until=peak.begin + peak.window)


async def find(request: web.Request, name: str) -> RecordingInfo:
    """Raises UnknownRecording."""
    for info in await request.app[ENGINE].recordings.infos():
        if info.name == name:
            return info
    raise UnknownRecording(f"There is no recording {name[:100]!r}.")


async def _do(request: web.Request, form: Mapping[str, str]) -> str:
    """The name of the recording that is looked at next; empty for the list."""
    recordings, said, name = request.app[ENGINE].recordings, form.get("act"), form.get("name", "").strip()
    me, reason = who(request), form.get("reason", "")[:500]
    if said == "start":
        await recordings.start(name, me, reason, _wish(request, form))
        return ""
    if said == "stop":
        return await recordings.stop(me, reason)
    if said in ("trim", "delete") and not may(request, Action.ADMINISTER):
        raise Forbidden("Only an administrator may delete what was recorded.")
    if said == "trim":
        await recordings.trim(name, _number(form, "days", 0, 36500) * 86400, me, reason)
        return name
    if said == "delete":
        if not form.get("confirmed"):
            raise InvalidInput("Tick the box to delete it: what is deleted is gone.")
        await recordings.delete(name, me, reason)
        return ""
    raise InvalidInput("This form asks for nothing that the server knows.")


def _wish(request: web.Request, form: Mapping[str, str]) -> PayloadWish | None:
    if form.get("mode", "shape") == "shape":
        return None
    if form["mode"] != "payload":
        raise InvalidInput("A recording keeps shape, or payload of models that are named.")
    if not may(request, Action.ADMINISTER):
        raise Forbidden("Only an administrator may have the content of requests recorded.")
    names = [name.strip() for name in form.get("models", "").split(",") if name.strip()]
    if not names:
        raise InvalidInput("Say which models' requests are to be kept: payload is by model only.")
    catalog = request.app[ENGINE].catalog
    models = tuple(dict.fromkeys(catalog.resolve(name)[0].id for name in names))
    try:
        most = size(form.get("bytes") or "1GiB")
    except ValueError as error:
        raise InvalidInput(f"{error}.") from None
    if most < 1:
        raise InvalidInput("The size cap is at least a byte.")
    return PayloadWish(models, _number(form, "hours", 0, HOURS, "1") * 3600, most)


def _number(form: Mapping[str, str], name: str, least: float, most: float, otherwise: str = "") -> float:
    said = form.get(name, "").strip() or otherwise
    try:
        value = float(said)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise InvalidInput(f"{name} is a number from {least:g} to {most:g}, not {said[:40]!r}.")
    return value


def _recorded(request: web.Request) -> None:
    if not request.app[ENGINE].recordings.view.enabled:
        raise InvalidInput("This server records no traffic; start it with recording = true.")


def _targets(request: web.Request) -> Targets:
    own = {
        (model, ServiceClass[name.upper()]): seconds
        for model, entry in request.app[ENGINE].catalog.models.items()
        for name, seconds in ((str(key), value) for key, value in entry.targets.items())
    }
    return Targets(scheduling_rules(request.app[ENGINE].settings).targets, own)


async def _listed(request: web.Request, infos: list[RecordingInfo]) -> list[Listed]:
    where = database(request)

    def measured() -> list[Listed]:
        return [Listed(info, _bytes(content.place(where, info.name))) for info in infos]

    return await to_thread.run_sync(measured)


def _with_log(path: Path) -> int:
    """Of a database: the newest rows lie in its write-ahead log."""
    return _bytes(path) + _bytes(path.with_name(f"{path.name}-wal"))


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


async def _page(
    request: web.Request, *, error: EngineError | None = None, form: Mapping[str, str] | None = None
) -> web.Response:
    recordings = request.app[ENGINE].recordings
    infos: list[RecordingInfo] = []
    off = ""
    try:
        infos = await recordings.infos()
    except InvalidInput as why:
        off = why.message
    running = recordings.view.running
    context = {
        "found": await _listed(request, infos),
        "payload_left": max(0.0, running.payload_until - time.time()) if running else None,
        "total_bytes": await to_thread.run_sync(_with_log, database(request)),
        "view": recordings.view,
        "off": off,
        "error": error,
        "form": form or {},
        "forms": [each.name for each in FORMS],
        "models": sorted(spec.id for spec in request.app[ENGINE].catalog),
    }
    status = errors.status(error) if error else 200
    return await pages.page(request, "recordings", context, status=status)


def _to(request: web.Request, path: str) -> web.Response:
    where = f"{request.app[ENGINE].settings.base_path}/console/recordings{quote(path, safe='/')}"
    return web.Response(status=303, headers={hdrs.LOCATION: where})
