"""A replay as a command: the target opened, a bar while it runs, a report when it is over."""

from __future__ import annotations

import gc
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import anyio
import click

from engine import __version__
from engine.catalog import Catalog
from engine.config import Settings
from engine.engine import Engine
from engine.parts import scheduling_rules
from engine.records import content
from engine.requests import Request, ServiceClass
from engine.running import open_engine
from replay.groups import Target
from replay.recording import Recording
from replay.replaying import run
from replay.replaying.target import Target as Asked
from replay.replaying.wanted import Chosen, Wanted, chosen
from replay.replaying.within import Within
from replay.report import report as reports
from replay.report.report import About, Report
from replay.trace import Trace
from web.cli.options import catalogue
from web.cli.process import prepare
from web.replaying import bar, lines, page
from web.replaying.http import connected
from web.replaying.own_server import own_server

HERE = "engine"
"""What stands for an engine in this process."""

PRIORITY = 10
"""Steps of niceness by which a sender goes before what else its core has to do."""


@dataclass(frozen=True, slots=True)
class Going:
    """What the command was told."""

    trace: Trace
    recording: Recording | None
    wanted: Wanted
    settings: Settings
    to: str | None
    """A URL, or `HERE`; None: a server is started for this."""
    key: str | None
    closed_sessions: bool
    load_first: bool
    ramp: float | None
    """Seconds of a step near the knee, where a ramp is wanted."""
    base: Path
    supervised: bool = False
    """Whether a program watches: it is told how far this is, in lines."""


def go(going: Going) -> bool:
    """Whether the run counts. Raises BadTrace."""
    catalog = catalogue(going.settings)
    original = going.recording.answers() if going.recording else None
    picked = chosen(going.trace, original, going.wanted)
    with steady(apart=going.to != HERE):
        if going.ramp is not None:
            from web.replaying.climbing import climb

            counts = anyio.run(climb, going, picked, catalog, going.ramp)
        else:
            report = anyio.run(_run, going, picked, catalog)
            counts = not report.void
            write(report, going.base)
            say(report, going.base)
    return counts


async def _run(going: Going, picked: Chosen, catalog: Catalog) -> Report:
    stop = anyio.Event()
    kept = kept_of(going)
    async with open_target(going, picked, catalog) as target, anyio.create_task_group() as tasks:
        await tasks.start(stop_on_signal, stop)
        drawn = bar.shown(f"replaying {going.trace.name}", picked.trace.span)
        with lines.shown(picked) if going.supervised else drawn as told:
            done = await run.run(
                picked,
                target,
                seed=going.wanted.seed,
                kept=kept,
                closed_sessions=going.closed_sessions,
                stop=stop,
                told=told,
            )
        tasks.cancel_scope.cancel()
    return reports.of(
        done.log,
        about(going, target, done.notes),
        target_of(going.settings, catalog),
        shares_process=target.shares_process,
        recording=going.recording,
        original=picked.original,
    )


def about(going: Going, target: Asked, notes: tuple[str, ...]) -> About:
    settings = dict(going.wanted.settings())
    if going.closed_sessions:
        settings["sessions"] = "closed"
    began = datetime.now(UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    return About(going.trace.name, target.name, began, __version__, going.wanted.seed, settings, notes)


def target_of(settings: Settings, catalog: Catalog) -> Target:
    """p99 targets as the settings here and the catalogue's entries have them."""
    rules = scheduling_rules(settings)

    def target(model: str, service_class: ServiceClass) -> float:
        entry = catalog.models.get(model)
        own = {str(name): seconds for name, seconds in entry.targets.items()} if entry else {}
        return own.get(service_class.name.lower(), rules.targets[service_class])

    return target


@asynccontextmanager
async def open_target(going: Going, picked: Chosen, catalog: Catalog) -> AsyncIterator[Asked]:
    """A server that is there, one started for this, or an engine in this process."""
    there_first = _there_first(going, picked, catalog)
    if going.to == HERE:
        async with _engine(going.settings, catalog) as engine:
            for model in there_first:
                await engine.load(model)
            yield Within(engine)
    elif going.to is not None:
        async with connected(going.to, going.key, catalog) as server:
            yield server
    else:
        async with own_server(going.settings) as url, connected(url, None, catalog) as server:
            for model in there_first:
                await server.load(model)
            server.name = "a server started for this"
            yield server


@asynccontextmanager
async def _engine(settings: Settings, catalog: Catalog) -> AsyncIterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="serai-") as folder:
        own = {"state_dir": Path(folder), "recording": False, "auth": "off", "catalog_watch": False}
        chosen = settings.model_copy(update=own)
        prepare(chosen)
        async with open_engine(chosen, catalog) as engine:
            yield engine


def _there_first(going: Going, picked: Chosen, catalog: Catalog) -> list[str]:
    """Models that are loaded before the first request: those that were there when the recording began."""
    if going.load_first:
        return list(picked.trace.models)
    residents = going.recording.snapshot.get("residents", []) if going.recording else []
    ready = [str(r["unit"]).partition("@")[0] for r in residents if r.get("state") == "ready"]
    return [model for model in dict.fromkeys(ready) if model in catalog.models]


def kept_of(going: Going) -> dict[int, Request]:
    """Requests whose content was recorded here, by their row in the recording."""
    if going.recording is None:
        return {}
    path = content.place(going.settings.state_dir / "traffic.db", going.recording.name)
    return contents(going.recording, path) if path.is_file() else {}


def contents(recording: Recording, path: Path) -> dict[int, Request]:
    """A client's id may come twice: the rows and the contents of one id are taken in order."""
    rows: dict[tuple[str, str], list[int]] = {}
    names = zip(recording.requests["request"].tolist(), recording.requests["model"].tolist(), strict=True)
    for row, name in enumerate(names):
        rows.setdefault(name, []).append(row)
    found: dict[int, Request] = {}
    for _, request, model, body in content.read(path):
        waiting = rows.get((request, model))
        if waiting:
            task, items, options, profile = content.unpacked(body)
            found[waiting.pop(0)] = Request(request, task, model, items, options, profile=profile)
    return found


async def stop_on_signal(
    stop: anyio.Event, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """The first Ctrl-C ends the sending, and the report is written; the second ends the process."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        task_status.started()
        async for number in received:
            signal.signal(number, signal.SIG_DFL)
            stop.set()
            return


@contextmanager
def steady(*, apart: bool) -> Iterator[None]:
    """What is here already is never looked through for garbage again; and where the server is another
    process, one of the machine's cores is the sender's, which goes first there where it may."""
    gc.collect()
    gc.freeze()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    alone = apart and len(cores) > 1
    first = os.getpriority(os.PRIO_PROCESS, 0)
    if alone:
        os.sched_setaffinity(0, {max(cores)})
        with suppress(PermissionError):  # only who administers the machine may
            os.setpriority(os.PRIO_PROCESS, 0, first - PRIORITY)
    try:
        yield
    finally:
        if alone:
            os.sched_setaffinity(0, cores)
            with suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, 0, first)
        gc.unfreeze()


def write(report: Report, base: Path) -> None:
    base.with_name(base.name + ".json").write_text(json.dumps(report.as_json(), indent=1), "utf-8")
    base.with_name(base.name + ".html").write_text(page.render(report), "utf-8")


def say(report: Report, base: Path) -> None:
    for row in report.replayed.groups:
        verdict = "" if row["holds"] else f", misses its target of {row['target']:g} s ({row['stage']})"
        click.echo(
            f"{row['model']}, {row['service_class']}: {row['requests']} requests, p50 {page.ms(row['p50'])}, "
            f"p99 {page.ms(row['p99'])}, {row['refused']:.1%} refused{verdict}"
        )
    for why in report.void:
        click.secho(f"The run is void: {why}.", fg="red")
    click.echo(f"{base}.html and {base}.json have the whole report.")
