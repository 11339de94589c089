"""`serai record`: named stretches of a server's traffic."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from web.cli.options import Finite, as_table
from web.cli.server import server_options

if TYPE_CHECKING:
    from web.calling.admin import Admin

HOUR = 3600.0


@click.group()
def record() -> None:
    """Record what a server is asked, to replay it and plan with it.

    A recording holds sizes and times, no content. A key is read from SERAI_KEY, or from a file.
    """


@record.command()
@click.argument("name")
@click.option(
    "--payloads", multiple=True, metavar="MODEL", help="Keep what this model is asked, too; repeatable."
)
@click.option("--payload-hours", default=1.0, show_default=True, type=Finite(0, 168, min_open=True))
@click.option("--payload-bytes", default="1GiB", show_default=True, metavar="SIZE")
@click.option("--reason", default="", metavar="TEXT", help="Kept in the audit log.")
@server_options
def start(
    name: str,
    payloads: tuple[str, ...],
    payload_hours: float,
    payload_bytes: str,
    reason: str,
    server: Callable[[], Admin],
) -> None:
    """Begin the recording NAME. It runs until `serai record stop`."""
    body: dict[str, Any] = {"name": name, "reason": reason}
    if payloads:
        size = _bytes(payload_bytes)
        body["payloads"] = {"models": payloads, "seconds": payload_hours * HOUR, "max_bytes": size}
    _run(lambda: server().post("recordings", "start", body=body))
    kept = ", with the content of requests for " + ", ".join(payloads) if payloads else ", without content"
    click.echo(f"{name} is being recorded{kept}.")


@record.command()
@click.option("--reason", default="", metavar="TEXT", help="Kept in the audit log.")
@server_options
def stop(reason: str, server: Callable[[], Admin]) -> None:
    """End the recording that runs."""
    found = _run(lambda: server().post("recordings", "stop", body={"reason": reason}))
    click.echo(f"{found['name']} is recorded.")


@record.command("list")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@server_options
def list_recordings(as_json: bool, server: Callable[[], Admin]) -> None:
    """Every recording, the newest first."""
    found = _run(lambda: server().get("recordings"))
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    rows = [
        (
            each["name"],
            each["closed"],
            _moment(each["started_at"]),
            _length(each),
            str(each["requests"]),
            str(each["models"]),
            str(each["loads"]),
            str(each["lost"] or ""),
        )
        for each in found["recordings"]
    ]
    plain = ("state", "began", "length", "requests", "models", "loads", "lost")
    as_table({"recording": "bold", **dict.fromkeys(plain, "")}, rows)
    running = found["recorder"]["running"]
    if running and running["payload_models"]:
        models = ", ".join(running["payload_models"])
        click.secho(f"{running['name']} keeps what {models} is asked.", fg="red", bold=True)
    if found["recorder"]["trouble"]:
        click.secho(f"The last write failed: {found['recorder']['trouble']}", fg="red")


@record.command()
@click.argument("name")
@server_options
def show(name: str, server: Callable[[], Admin]) -> None:
    """One recording, as JSON."""
    click.echo(json.dumps(_run(lambda: server().get("recordings", name)), indent=2))


@record.command()
@click.argument("name")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Default: NAME and the form's ending.")
@click.option("--shareable", is_flag=True, help="Without names, sessions and exact sizes; times from zero.")
@click.option(
    "--form",
    type=click.Choice(["recording", "mooncake", "vegeta", "k6"]),
    default="recording",
    show_default=True,
    help="Of other load generators: AIPerf's Mooncake lines, vegeta targets, a k6 schedule.",
)
@click.option(
    "--target", default="http://127.0.0.1:8080", show_default=True, help="Server in vegeta and k6 targets."
)
@server_options
def export(
    name: str,
    output: Path | None,
    shareable: bool,
    form: str,
    target: str,
    server: Callable[[], Admin],
) -> None:
    """Write the recording NAME to a file. NAME may be a recording's or a trace's file, to change its form."""
    from replay.formats import writing

    out = output or Path(Path(name).name.partition(".")[0] + writing.ENDINGS[form])
    if form == "recording" and not Path(name).is_file():
        query = {"shareable": "true" if shareable else "false"}
        _run(lambda: server().download(out, "recordings", name, "export", query=query))
    else:
        _convert(name, out, form, target, server)
    click.echo(str(out))


def _convert(name: str, out: Path, form: str, target: str, server: Callable[[], Admin]) -> None:
    import tempfile

    from replay.formats import writing
    from web.cli.traces import opened

    with tempfile.TemporaryDirectory(prefix="serai-") as folder:
        path = Path(name)
        if not path.is_file():
            path = Path(folder) / "recording.jsonl.gz"
            query = {"shareable": "false"}
            _run(lambda: server().download(path, "recordings", name, "export", query=query))
        trace, _ = opened(str(path), {}, None)
    writing.write(trace, out, form, target)


@record.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--name", help="What the recording is called.  [the file's name]")
@click.option(
    "--map",
    "mapping",
    multiple=True,
    metavar="FIELD=COLUMN",
    help="For a CSV of your own: time=COLUMN, and input=, output=, model=, session= where there are such.",
)
@click.option(
    "--unit",
    type=Finite(min=0, max=1e9, min_open=True),
    default=1.0,
    show_default=True,
    help="Seconds in one of the time column's units.",
)
@click.option("--as", "names", multiple=True, metavar="NAME=MODEL", help="Which model of yours is meant.")
@server_options
def take_in(
    file: Path,
    name: str | None,
    mapping: tuple[str, ...],
    unit: float,
    names: tuple[str, ...],
    server: Callable[[], Admin],
) -> None:
    """Take in a recording that was exported, or a trace in one of the forms that others publish."""
    import tempfile

    from replay.formats import writing
    from web.cli.traces import is_recording, opened, pairs

    chosen = name or file.name.partition(".")[0]
    with tempfile.TemporaryDirectory(prefix="serai-") as folder:
        path = file
        if not is_recording(file):
            trace, _ = opened(str(file), pairs(mapping, "--map"), unit)
            for note in trace.notes:
                click.echo(f"{file}: {note}", err=True)
            path = Path(folder) / "recording.jsonl.gz"
            writing.write(trace.renamed(pairs(names, "--as")), path, "recording", "")
        _run(lambda: server().upload(path, "recordings", chosen, "import"))
    click.echo(f"{chosen} is taken in.")


@record.command()
@click.argument("name", required=False)
@click.option("--days", type=Finite(0, 36500), required=True, help="Keep so many, to the end.")
@click.option("--reason", default="", metavar="TEXT", help="Kept in the audit log.")
@server_options
def trim(name: str | None, days: float, reason: str, server: Callable[[], Admin]) -> None:
    """Keep the last days only: of the recording NAME, or of all that no recording holds."""
    body = {"name": name, "days": days, "reason": reason}
    _run(lambda: server().post("recordings", "trim", body=body))
    click.echo(f"{name or 'Traffic that no recording holds'} is cut to its last {days:g} days.")


@record.command()
@click.argument("name")
@server_options
def delete(name: str, server: Callable[[], Admin]) -> None:
    """Forget a recording, and what was kept of its content."""
    _run(partial(_delete, server, name))
    click.echo(f"{name} is forgotten.")


async def _delete(server: Callable[[], Admin], name: str) -> dict[str, Any]:
    return await server().delete("recordings", name)


def _run(work: Callable[[], Any]) -> Any:
    import anyio

    async def awaited() -> Any:
        return await work()

    return anyio.run(awaited)


def _bytes(said: str) -> int:
    from pydantic import TypeAdapter, ValidationError

    from engine.quantities import Bytes

    try:
        return int(TypeAdapter(Bytes).validate_python(said))
    except ValidationError as error:
        raise click.BadParameter(error.errors()[0]["msg"], param_hint="--payload-bytes") from None


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M") if at else ""


def _length(found: dict[str, Any]) -> str:
    if found["ended_at"] is None:
        return "runs"
    seconds = round(found["ended_at"] - found["started_at"])
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
